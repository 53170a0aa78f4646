"""Rounds on a virtual clock: which devices take part when, what this costs, and when the server has a new model."""
