"""pytest and pytest-benchmark: options, suites as tests, device times, what fails a session.

pytest-benchmark's files are read in `harness.store` and judged in `harness.judgement.saved_runs`.
"""
