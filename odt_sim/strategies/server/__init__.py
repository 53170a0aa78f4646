"""Averages as gradients of an optimizer on the server."""
