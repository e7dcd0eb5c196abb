"""The operating system and its tools: files, processes, git, the cache folder, installed packages.

Nothing here depends on kernels.
"""
