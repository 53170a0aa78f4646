"""Personalization strategies, one file each."""
