"""pytest and pytest-benchmark: options, suites as tests, device times, failing a session.

`harness.records.imports` reads pytest-benchmark's files, and `harness.judgement.saved_runs` judges them.
"""
