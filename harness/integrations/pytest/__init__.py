"""pytest and pytest-benchmark: options, suites as tests, device times, what fails a session.

pytest-benchmark's files are read in `harness.records.imports` and judged in `harness.judgement.saved_runs`.
"""
