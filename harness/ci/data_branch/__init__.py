"""Results on a branch of the repository: which files may be stored, and the commit that stores them.
Nothing here knows what a result says.
"""
