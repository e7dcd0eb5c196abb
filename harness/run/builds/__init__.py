"""Kernels built for cards that need not be here, and their static facts as records.
No device is opened.
"""
