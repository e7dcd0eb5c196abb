"""The pages of a history: documents for the browser, and the shells and scripts that show them (assets/).
What the documents say is concluded in history/.
"""
