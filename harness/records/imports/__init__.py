"""Reads files of other harnesses and programs, and asv's configuration files. run/ turns them
into records.
"""
