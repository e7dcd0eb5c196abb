"""Benchmark scripts of a repository, unchanged: their timing calls at two commits, measured in turns.

Suites are measured by the modules around this folder.
"""
