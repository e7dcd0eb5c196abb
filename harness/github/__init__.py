"""What is GitHub's own: its events, its API, its runners' files, branches that hold results."""
