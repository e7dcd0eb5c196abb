"""GitLab's own: its predefined variables, its API, the files of its pipelines.
What GitHub shares lies a folder above.
"""
