"""What was measured over the commits of a line: series of figures, the changes in them, decisions on those.

Searching a series is in `harness.statistics.changepoints`; pages are in `harness.site`.
"""
