"""Compares benchmark programs (C++ executables and Python commands) of two commits.

../compare.py compares suites.
"""
