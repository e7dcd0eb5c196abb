"""Tables, bars and sentences for a terminal, and the JSON of commands.

../table.py has the tables' data, and ../words/ the wording of verdicts.
"""
