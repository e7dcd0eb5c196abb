"""asv: its plugin, changes to its commands and pages, and its files made from records.

`harness.history` reads asv's results as series.
"""
