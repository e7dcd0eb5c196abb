"""Other tools that measure through the harness: asv and pytest, a room each.

`asv_plugin` and `asv_tracks` are the names that configurations and benchmark files hold.
"""
