"""Averages of models that train with a further term of the loss."""
