"""Arrangements of data that make lowered ops fast: windows, bands, parts of batches, late values."""
