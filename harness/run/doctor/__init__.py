"""Is this machine fit to judge performance? `gather` asks for `machine_facts`, `checks` says what they mean.
Nothing of the machine is changed.
"""
