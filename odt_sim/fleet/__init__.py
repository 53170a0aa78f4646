"""The conditions of a fleet's devices: their classes, the costs of work, their availability and batteries."""
