"""Runs inside a benchmark script: takes over its timing calls, and obeys the process that compares.

The harness copies this package beside the sitecustomize.py of `side_modules`, which calls `begin`. So it runs
in any Python from 3.8 on, in which the harness may not be installed: it imports the standard library alone.
"""
