"""Aggregators: rules that combine the updates of a round, one file each."""

from odt_sim.aggregators.base import Aggregator
from odt_sim.aggregators.differential_privacy import DifferentialPrivacy
from odt_sim.aggregators.krum import Krum
from odt_sim.aggregators.mean import Mean
from odt_sim.aggregators.median import Median
from odt_sim.aggregators.norm_clipping import NormClipping
from odt_sim.aggregators.trimmed_mean import TrimmedMean

__all__ = ["Aggregator", "DifferentialPrivacy", "Krum", "Mean", "Median", "NormClipping", "TrimmedMean"]
