"""Where a history's figures come from: our records, asv's result files, and the cards that have either.
No figure is judged here.
"""
