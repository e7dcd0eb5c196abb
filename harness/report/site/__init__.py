"""The pages of a history: data for the browser, and the HTML and scripts that show them (assets/).

history/ makes the conclusions.
"""
