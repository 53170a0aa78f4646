"""Lowerings, one file per family of ops."""
