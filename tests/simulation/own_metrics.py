"""Metrics of a user, imported as a user would."""

import numpy as np


def first_class(outputs, targets):
    """Return the share of the examples predicted as the first class."""
    return float((outputs.argmax(axis=1) == 0).mean())


def worst_margin(outputs, targets):
    """Return the largest gap between an example's largest output and that of its label."""
    own = outputs[np.arange(len(targets)), targets]
    return float((outputs.max(axis=1) - own).max())


worst_margin.higher_is_better = False


def unusual(outputs, targets, train):
    """Return the share of examples whose largest output is above 60 % of those of training."""
    return float((outputs.max(axis=1) > np.quantile(train[0].max(axis=1), 0.6)).mean())


def train_share(outputs, targets):
    return 1.0


def never(outputs, targets):
    """Return NaN, so that the metric is undefined on every device."""
    return float("nan")
