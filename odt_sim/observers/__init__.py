"""Observers of a run: display, early stopping, and the interface for user code."""

from odt_sim.observers.base import Observer, RunInfo
from odt_sim.observers.early_stopping import EarlyStopping

__all__ = ["EarlyStopping", "Observer", "RunInfo"]
