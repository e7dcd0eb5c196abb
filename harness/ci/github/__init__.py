"""GitHub's own: its events, its API, its artifacts, what is posted to a pull request.
What GitLab shares lies a folder above.
"""
