"""Suites as authors write them (problems, kernels, sizes, cases), and their loading at a commit.

Nothing here measures.
"""
