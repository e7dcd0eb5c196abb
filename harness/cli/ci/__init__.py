"""The commands of `harness ci`, one file each."""
