"""Inside the process that holds the card: buffers, verification, timing of one kernel or of two (`quads`).
Nothing here judges. `worker` is the process, and `protocol` its requests and answers.
"""
