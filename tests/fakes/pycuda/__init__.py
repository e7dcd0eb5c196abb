"""A PyCUDA for machines without a card, told by $FAKE_CUDA what is wrong or how many cards there are."""

import os

if os.environ["FAKE_CUDA"] == "no pycuda":
    raise ImportError("No module named 'pycuda'")
