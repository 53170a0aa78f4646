"""Every engine passes the tests of the contract; `tests/flex` has TensorFlow's."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_conformance import EngineConformance

import odt_sim
from odt_sim import Device, TrainableModel
from odt_sim.device.engines import LITERT, Engine, RuntimeChoice
from odt_sim.device.engines.interpreter import InterpreterEngine
from odt_sim.device.runtime_pool import RuntimePool
from odt_sim.simulation.clock.work import EmptyEngine

OWN_FRAMES = 6
"""The most frames of odt_sim from `Device.train` to LiteRT, which are to be read from top to bottom."""


class TestInterpreter(EngineConformance):
    @pytest.fixture
    def engine(self, model: TrainableModel) -> Engine:
        return LITERT(model.content, model.where)


class TestCompiledModel(EngineConformance):
    @pytest.fixture
    def engine(self, model: TrainableModel) -> Engine:
        return RuntimeChoice("compiled")(model.content, model.where)


class TestEngineThatComputesNothing(EngineConformance):
    @pytest.fixture
    def engine(self, model: TrainableModel) -> Engine:
        return EmptyEngine(model)

    test_unknown_signature_is_refused = None  # type: ignore[assignment]
    test_wrong_inputs_are_refused = None  # type: ignore[assignment]


class Watched:
    """LiteRT's interpreter, which counts the frames of odt_sim above its calls."""

    def __init__(self, native: Any, depths: list[int]) -> None:
        self._native, self._depths = native, depths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def Invoke(self, subgraph: int) -> None:  # noqa: N802
        self._depths.append(frames_since(Device.train.__code__))
        self._native.Invoke(subgraph)


def frames_since(first: Any) -> int:
    """Return the number of frames of odt_sim from the frame of a function to the caller; 0 without the function."""
    package, frame, count = str(Path(odt_sim.__file__).parent), sys._getframe(1), 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(package)
        if frame.f_code is first:
            return count
        frame = frame.f_back  # type: ignore[assignment]
    return 0


@pytest.mark.parametrize("name", ["momentum", "frozen"])
@pytest.mark.parametrize("edits", [True, False])
def test_few_frames_lead_from_a_device_to_litert(
    name: str, edits: bool, request: pytest.FixtureRequest, rows: Any
) -> None:
    """Whether a call runs one step or several, on examples or on embeddings."""
    model: TrainableModel = request.getfixturevalue(name)
    pool, depths = RuntimePool(model, edits=edits), list[int]()
    device = Device(model, rows(model, 9 * model.batch_size), pool=pool)
    for _ in range(2):
        device.train(learning_rate=0.1)
        for runtime in (pool.first, pool.head.first):
            assert isinstance(runtime.engine, InterpreterEngine)
            for call in runtime.engine._calls.values():
                call._native = Watched(call._native, depths)
    device.train(learning_rate=0.1)
    assert 0 < max(depths) <= OWN_FRAMES
    assert np.isfinite(device.weights.vector).all()
