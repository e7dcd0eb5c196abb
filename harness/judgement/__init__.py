"""From numbers to a verdict: `judge` decides it and holds the error rates, `case_trial` takes one case there.

Nothing here measures; the estimates themselves are in `harness.statistics`.
"""
