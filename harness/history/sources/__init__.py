"""Sources of a history's values: our records, asv's result files, and the cards that have either.

They judge no value.
"""
