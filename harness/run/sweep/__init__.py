"""A sweep: every configuration of one kernel is rejected, fails or is measured, and the best is confirmed.

Its tables and pages are in report/.
"""
