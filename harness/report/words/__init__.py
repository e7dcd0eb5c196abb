"""A verdict in words, the same on every face: terminal, pytest, comment, check, page.
No table and no markup.
"""
