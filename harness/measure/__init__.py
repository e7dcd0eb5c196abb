"""The process that holds the card: buffers, verification, and timing of one kernel or of two (`quads`).

Nothing here judges. `worker` is the process, and `protocol` defines its requests and answers.
"""
