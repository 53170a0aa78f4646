"""What watches a run: the display, and callbacks of a user's."""
