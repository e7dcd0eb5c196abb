"""GitHub's own parts: its events, its API, its artifacts, posts to a pull request.

Parts shared with GitLab are in the folder above.
"""
