"""Rounds on a virtual clock: who takes part when, what it costs, and when the server has a new model."""
