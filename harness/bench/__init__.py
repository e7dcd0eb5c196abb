"""What happens inside a worker process: buffers, verifying, timing. `abba` is the timing loop of comparisons.

What starts workers and decides what they do next is in `harness.run`; judging is in `harness.judgement`.
"""
