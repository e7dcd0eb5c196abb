"""A sweep: every configuration of one kernel, rejected, failed or measured, and the best found surely.

What it shows is in `harness.output`; how one configuration is timed is in `harness.bench`.
"""
