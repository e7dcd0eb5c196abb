"""`harness init`: the benchmarks and kernels of a repository, and suites for the kernels, for their author.
Only cli/ imports this room. Nothing here compiles or measures.
"""
