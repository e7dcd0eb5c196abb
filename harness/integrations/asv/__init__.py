"""asv: its plugin, what its commands and pages show, and its files made from records.

What asv's results have become as series is in `harness.history`.
"""
