"""Files of other harnesses and programs, and asv's configuration files.
They are read here, and made records by run/.
"""
