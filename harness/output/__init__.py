"""What users see of runs, comparisons, sweeps and histories: in a terminal, as Markdown, as HTML.

Nothing here measures or judges. Pages of a history are in `harness.site`.
"""
