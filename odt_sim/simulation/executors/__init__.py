"""Executors, which run the blocks of a round: this process, processes, Ray."""
