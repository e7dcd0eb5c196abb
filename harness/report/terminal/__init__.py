"""Tables, bars and sentences for a terminal, and the JSON of a command that prints them.
Tables of any look are in ../table.py, the words of a verdict in ../words/.
"""
