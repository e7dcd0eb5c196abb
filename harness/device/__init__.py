"""Devices for kernels: backends, telemetry/, peaks, locks and toolchains.

static/ describes kernels that are compiled and not run. No rules of suites are here.
"""
