"""Sources of a history's figures: our records, asv's result files, and the cards that have either.
No figure is judged here.
"""
