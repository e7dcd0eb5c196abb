"""GitLab's own parts: its predefined variables, its API, the files of its pipelines.

Parts shared with GitHub are in the folder above.
"""
