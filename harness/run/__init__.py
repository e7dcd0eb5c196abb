"""Jobs on a device, seen from the process that asks: a run, a comparison, a calibration, a doctor's visit.
The timing itself is in measure/, in another process.
"""
