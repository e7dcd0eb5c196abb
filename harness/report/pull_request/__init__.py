"""A result document as a comment, a check, a page, and in the forms that other CI systems read.
Nothing here reads a record.
"""
