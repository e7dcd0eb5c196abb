"""What the operating system and its tools give: files, processes, git, the cache folder, installed packages.
Nothing here knows of kernels.
"""
