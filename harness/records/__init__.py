"""The records that all packages share, and their files: runs, comparisons, calibrations.

imports/ turns files of other harnesses into records. history/ evaluates them.
"""
