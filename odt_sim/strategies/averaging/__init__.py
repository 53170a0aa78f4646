"""Averages of models, and the baseline without one."""
