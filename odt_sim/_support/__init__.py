"""Code that all parts share: checks of values, files, the system, user code and texts."""
