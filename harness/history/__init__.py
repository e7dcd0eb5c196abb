"""Series of measurements over the commits of a line: changes, events, suspects, and a team's decisions.

report/ shows them on pages and in the terminal. sources/ reads the measurements.
"""
