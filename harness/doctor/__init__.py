"""Is this machine fit to judge performance? `gather` looks at it, `checks` says what that means."""
