"""Programs as benchmarks: C++ executables and commands of Python, run in turns at two commits.
Suites are compared in ../compare.py.
"""
