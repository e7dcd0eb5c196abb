"""The doctor: is this machine fit to judge performance? `gather` asks it, `checks` says what it answered.
Nothing of the machine is changed.
"""
