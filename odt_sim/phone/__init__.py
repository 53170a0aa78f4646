"""Phones as devices: the page that trains a model file in a browser, and its server."""
