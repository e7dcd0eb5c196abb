"""Runs a module of Python with no folder on its import path but those of the environment.

    python start.py MODULE WORD...

``python -m`` puts the current folder first, and so loads what an earlier process has left there under the
name of a standard module. Python puts the folder of a script first instead, and this one takes it away.
"""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):  # of Python 3.11
        del sys.path[0]
    del sys.argv[0]
    import runpy

    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
