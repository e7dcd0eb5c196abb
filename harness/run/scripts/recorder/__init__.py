"""Runs inside a benchmark script: replaces its timing calls, and executes the comparing process's orders.

The harness copies this package beside the sitecustomize.py of `side_modules`, which calls `begin`. So it runs
in any Python from 3.8 on, where the harness may not be installed. It imports the standard library only.
"""
