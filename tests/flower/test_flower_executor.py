"""Flower's executor passes the tests of the contract, with nodes in this process."""

from typing import ClassVar

import pytest
from executor_conformance import ExecutorConformance
from nodes import Nodes

from odt_sim.flower import client_app
from odt_sim.flower.backend import FlowerBackend


class TestFlower(ExecutorConformance):
    states_stay = False
    unsupported: ClassVar = {"metrics"}

    @pytest.fixture
    def executor(self):
        def make(model, data, strategy, *, fleet=None, plan=None, aggregator=None, attack=None, **_):
            app = client_app(model, data, strategy, fleet=fleet, plan=plan, aggregator=aggregator, attack=attack)
            return FlowerBackend(Nodes([app] * data.devices))

        return make
