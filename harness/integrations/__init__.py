"""Other tools that measure through the harness: asv and pytest, a package each.

`asv_plugin` and `asv_tracks` are the names used in configurations and benchmark files.
"""
