"""A kernel's demands on a card, told from its source, its build and its launch: no card, no profiler.
Nothing here is a measurement.
"""
