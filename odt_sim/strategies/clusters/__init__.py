"""Clusters of devices, and neighbours."""
