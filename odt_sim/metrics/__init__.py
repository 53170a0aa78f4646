"""Metrics of one device, and of a fleet."""
