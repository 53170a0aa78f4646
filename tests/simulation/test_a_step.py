"""The frames of odt_sim between `Simulation.run` and a model's signature, which docs/a-step.md explains one by one."""

import sys
from dataclasses import dataclass
from pathlib import Path

import odt_sim
from odt_sim.device.engines import RuntimeChoice
from odt_sim.simulation.executors.serial import SerialBackend
from odt_sim.strategies.averaging.fedavg import FedAvg

PACKAGE = str(Path(odt_sim.__file__).parent)
STACKS: list[list[str]] = []


@dataclass(frozen=True)
class Watched(RuntimeChoice):
    """LiteRT's interpreter, with the stack of each call of a training signature."""

    def __call__(self, content, where):
        engine = super().__call__(content, where)
        call = engine.call

        def watched(signature, **inputs):
            if signature.startswith("train"):
                STACKS.append(_frames())
            return call(signature, **inputs)

        engine.call = watched
        return engine


def _frames() -> list[str]:
    """Return the functions of odt_sim below `Simulation.run`, outermost first."""
    frame, names = sys._getframe(2), []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            names.append(f"{Path(frame.f_code.co_filename).relative_to(PACKAGE)}:{frame.f_code.co_name}")
        frame = frame.f_back
    names = names[: names.index("simulation/run/coordinator.py:run")]
    return names[::-1]


def test_a_step_is_at_most_twelve_frames_below_run(simulation, tmp_path):
    STACKS.clear()
    backend = SerialBackend()
    backend.runtime = Watched()
    simulation(FedAvg(), tmp_path, rounds=1, backend=backend).run(observers=[])
    longest = max((stack for stack in STACKS if "simulation/run/round.py:run" in stack), key=len)
    assert len(longest) <= 12, longest
    page = (Path(PACKAGE).parent / "docs" / "a-step.md").read_text()
    assert [name for name in longest if f"`{name}`" not in page] == []
