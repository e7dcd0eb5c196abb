"""What kernels run on: backends, what a card says of itself (telemetry/), its peaks, its lock, toolchains.
static/ tells of kernels that are compiled and not run. No rule of a suite is here.
"""
