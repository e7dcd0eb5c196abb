"""Results as people see them: words/ of verdicts, the terminal/, a pull_request/, the published site/.
Nothing here concludes anything from figures.
"""
