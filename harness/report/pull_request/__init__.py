"""A result document as a comment, a check, a page, and in formats of other CI systems. It reads no record."""
