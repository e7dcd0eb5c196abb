"""Suites as a kernel's author writes them (problems, kernels, sizes, cases), and loading them at a commit.
Nothing here measures.
"""
