"""What the forges have in common: the client of a REST API, the one comment that is kept up to date, what an
audit finds. Not here: any one forge's addresses, events and settings.
"""
