"""Builds kernels for cards that need not be present, and stores their static facts. No device is opened."""
