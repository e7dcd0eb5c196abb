"""A project's history: asv's results of every card, read, split into epochs, and searched for changes."""
