"""Models that learn to adapt."""
