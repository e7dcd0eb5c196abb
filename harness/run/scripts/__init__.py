"""Compares a repository's unchanged benchmark scripts at two commits, alternating at each timing call.

The modules around this folder measure suites.
"""
