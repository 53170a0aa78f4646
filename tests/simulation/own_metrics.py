"""Metrics of a user, imported as a user would."""

import numpy as np


def first_class(outputs, targets):
    """Return the share of the examples that are taken for the first class."""
    return float((outputs.argmax(axis=1) == 0).mean())


def worst_margin(outputs, targets):
    """Return by how much the worst example's own output is below the largest."""
    own = outputs[np.arange(len(targets)), targets]
    return float((outputs.max(axis=1) - own).max())


worst_margin.higher_is_better = False


def train_share(outputs, targets):
    return 1.0


def never(outputs, targets):
    """Return what no device has."""
    return float("nan")
