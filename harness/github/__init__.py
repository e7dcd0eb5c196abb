"""What is GitHub's own: its events, its API, its runners' files, branches that hold results.

What a comment says is in `harness.output.review`.
"""
