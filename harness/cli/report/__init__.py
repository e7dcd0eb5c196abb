"""The commands of `harness report`, one file each."""
