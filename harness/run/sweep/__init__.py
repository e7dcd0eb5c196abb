"""A sweep: every configuration of one kernel, rejected, failed or measured, and the best found surely.
Tables and pages of it are in report/.
"""
