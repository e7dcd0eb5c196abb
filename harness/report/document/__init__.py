"""The result document of a pull request: its types, how it is made, whether it can be true, its outcome.
The words and looks of it are in pull_request/.
"""
