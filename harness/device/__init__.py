"""What kernels run on: the backends, what a card says of itself (telemetry), its name, its peaks, its lock.

How kernels are timed and checked on it is in `harness.bench`.
"""
