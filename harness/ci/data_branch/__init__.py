"""Results on a branch of the repository: which files may be stored, and the commit that stores them.

The contents of results are not interpreted here.
"""
