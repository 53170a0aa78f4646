"""Devices' data: partitions, splits, arrival, drift, standardization."""
