"""`harness init`: the kernels that a repository has, and a first suite that measures them, for their author.
Only cli/ imports this room. Nothing here compiles or measures.
"""
