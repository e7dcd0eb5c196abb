"""Is this machine fit to judge performance? `gather` asks it for `facts`, `checks` says what they mean."""
