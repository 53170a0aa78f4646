"""Simulated devices: interpreters, checkpoints, local training and evaluation."""
