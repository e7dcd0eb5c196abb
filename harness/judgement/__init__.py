"""Judges measurements by arithmetic alone: gates, trials of a case, verdicts and causes.

`statistics/` holds the estimates and tests. Nothing here reads a file, a clock or a device. `judge` decides a
verdict and defines the error rates.
"""
