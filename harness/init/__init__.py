"""`harness init`: finds the benchmarks and kernels of a repository, and drafts suites for the kernels.

Only cli/ imports this package. Nothing here compiles or measures.
"""
