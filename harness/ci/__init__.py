"""CI jobs: call a forge, update one comment, store results on a branch, write workflows.

report/ has the wording of verdicts. github/ and gitlab/ have the parts for one forge.
"""
