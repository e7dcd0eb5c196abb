"""Devices for kernels: backends, a card's own account of itself (telemetry/), peaks, its lock, toolchains.
static/ tells of kernels that are compiled and not run. No rule of a suite is here.
"""
