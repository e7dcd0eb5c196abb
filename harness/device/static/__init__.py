"""A kernel's demands on a card, from its source, its build and its launch, without a card or a profiler.

Nothing here is a measurement.
"""
