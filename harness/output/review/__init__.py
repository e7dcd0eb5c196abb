"""A comparison as reviewers of a pull request see it: one model, and the faces that are made of it.

What talks to GitHub is in `harness.github`.
"""
