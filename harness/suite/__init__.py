"""What a kernel's author writes: problems, kernels, sizes, cases; and how a suite is loaded at a commit.
Nothing here measures.
"""
