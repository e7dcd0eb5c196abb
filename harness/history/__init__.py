"""Figures over the commits of a line: series, their changes, events, suspects, and a team's decisions.
No page and no terminal, which report/ has. What the figures are read from is in sources/.
"""
