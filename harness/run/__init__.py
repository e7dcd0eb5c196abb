"""The procedures: a run, a comparison, a calibration, from a plan to records, by workers on a device.

What happens inside a worker is in `harness.bench`; what users see of it is in `harness.output`.
"""
