"""Checks of data at the source and for a model, and leakage."""
