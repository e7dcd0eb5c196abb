"""The result document of a pull request: its types, its creation, its plausibility checks, and its outcome.

pull_request/ has its wording and layout.
"""
