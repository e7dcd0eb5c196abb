"""The records that every other room reads and writes, and their files: a run, a comparison, a calibration.
Files of other harnesses become records in imports/. What a history makes of them is in history/.
"""
