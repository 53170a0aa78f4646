"""The workloads of `peers.py`, and a script for each simulator."""
