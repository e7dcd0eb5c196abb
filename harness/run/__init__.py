"""Jobs on a device, in the process that requests them: a run, a comparison, a calibration, a diagnosis.

The timing itself is in measure/, in a worker process.
"""
