"""The simulation of a fleet: rounds, blocks of devices, and the backends that run them."""
