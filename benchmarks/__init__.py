"""What asv runs: one class a suite. The lists of kernels and sizes come from the suites themselves."""
