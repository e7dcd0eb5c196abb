"""`harness init`: what kernels a repository has, and the files that measure them, written for their author.

Reading sources belongs here (`cpp.py`, `python_kernels.py`, `triton_kernels.py`), what is guessed of them
(`guess.py`), and the files that are made of it (`files.py`). Nothing here runs, imports or compiles what it
reads. What a suite means is `spec/`'s business, and the workflows are `github/`'s.
"""
