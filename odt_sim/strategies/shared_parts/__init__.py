"""Models of which devices share a part."""
