"""The workloads of `peers.py`, and a script per simulator."""
