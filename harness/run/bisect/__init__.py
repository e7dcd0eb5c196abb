"""Which commit between two made a case slower: the search, and who compares each pair of commits.
What answers say together is arithmetic, in judgement/statistics/.
"""
