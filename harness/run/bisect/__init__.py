"""The search for the commit that made a case slower, and the comparison of each pair of commits.
What answers say together is arithmetic, in judgement/statistics/.
"""
