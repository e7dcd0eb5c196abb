"""Judgement by arithmetic alone: gates, trials of a case, verdicts, causes; estimates in statistics/.
No file, no clock, no device. `judge` decides a verdict and holds the error rates.
"""
