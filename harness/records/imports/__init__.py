"""Files of other harnesses: pytest-benchmark, Google Benchmark, nvbench, and asv's configuration.
They are read here, and made records by run/.
"""
