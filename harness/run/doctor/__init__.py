"""Checks whether this machine can judge performance. `gather` reads its facts, `checks` judges them.

Nothing on the machine is changed.
"""
