"""Observers of a run: display, early stopping, and the interface for user code."""
