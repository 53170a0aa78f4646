"""Phones as devices: the page that trains a file in a browser, and the server that hands it out."""
