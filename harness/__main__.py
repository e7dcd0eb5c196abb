"""`python -m harness`, where the command `harness` is not on PATH."""

from harness.cli import main

main()
