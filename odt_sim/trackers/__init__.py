"""Trackers: tools that show a run's figures beside those of other runs."""
