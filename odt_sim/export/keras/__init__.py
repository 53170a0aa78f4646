"""From Keras models to traced steps: interface, losses, optimizers, padding, steps."""
