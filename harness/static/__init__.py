"""What a kernel asks of a card, told from its source and its launch: no card, no profiler. What was measured
does not belong here.
"""
