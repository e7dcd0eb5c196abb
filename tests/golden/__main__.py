"""Renew the golden outputs: `python -m tests.golden`, with options of pytest, such as `-k history`.

Look at the difference with git before you commit it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.golden.expected import RENEWED

if __name__ == "__main__":
    os.environ[RENEWED] = "1"
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:], str(Path(__file__).parent)]))
