"""Trackers: tools that show a run's metrics next to those of other runs."""
