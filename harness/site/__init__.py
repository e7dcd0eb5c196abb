"""The pages of a history: documents for the browser, and the shells and scripts that show them.

What is found in a history is in `harness.history`.
"""
