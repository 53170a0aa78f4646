"""Strategies whose devices finish in any order."""

import time

import numpy as np

from odt_sim.strategies.averaging.scaffold import Scaffold
from odt_sim.strategies.server.fedadam import FedAdam
from odt_sim.strategies.two_models.ditto import Ditto


class Late:
    """A mixin that sleeps up to 30 ms, drawn from a seed; None for no sleep."""

    def __init__(self, seed):
        super().__init__()
        self._seed = seed

    def local(self, device, broadcast):
        if self._seed is not None:
            time.sleep(0.03 * np.random.default_rng((self._seed, device.id, device.round)).random())
        return super().local(device, broadcast)


class LateDitto(Late, Ditto):
    pass


class LateFedAdam(Late, FedAdam):
    pass


class LateScaffold(Late, Scaffold):
    pass
