"""The search for the commit that made a case slower, and the comparison of pairs of commits.

`judgement/statistics/bisection` combines the answers.
"""
