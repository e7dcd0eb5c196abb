"""Records on disk, and the files of other harnesses: writing, reading, finding them.

What a record means is in `harness.records`; what a history makes of many is in `harness.history`.
"""
