"""Damaged checkpoints and records: a run resumes to the same bits, or names the damaged file."""

import shutil
from functools import partial

import numpy as np
import pytest
from deaths import DeathError, DiesAfterRound, Recorder
from mutations import BYTES, mutated

from odt_sim import Fleet, Simulation, TrainingPlan
from odt_sim.data import federate, iid
from odt_sim.data.dataset import Dataset
from odt_sim.strategies.shared_parts.fedper import FedPer

pytestmark = pytest.mark.slow

DIED, ROUNDS = 3, 4


@pytest.fixture(scope="module")
def simulation(momentum):
    """Return a function that creates a simulation of a small fleet with device states."""
    random = np.random.default_rng(0)
    examples = Dataset("made", random.random((40, 6), np.float32), np.arange(40, dtype=np.int32) % 3, classes=3)
    settings = {"rounds": ROUNDS, "fleet": Fleet(unseen=1), "plan": TrainingPlan(1, 0.05), "evaluate_every": 1}
    return partial(Simulation, momentum, federate(examples, iid, 3, seed=0), FedPer(), **settings)


@pytest.fixture(scope="module")
def whole(simulation, tmp_path_factory):
    """The device records of an undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    simulation(directory=folder).run()
    return (folder / "devices.jsonl").read_bytes()


@pytest.fixture(scope="module")
def died(simulation, tmp_path_factory):
    """The folder of an interrupted run."""
    folder = tmp_path_factory.mktemp("fuzz") / "died"
    with pytest.raises(DeathError):
        simulation(directory=folder).run(observers=[DiesAfterRound(DIED)])
    return folder


@pytest.mark.usefixtures("unverified")
def test_damaged_checkpoint_resumes_or_is_refused(simulation, whole, died, many, outcomes, tmp_path):
    names = sorted(path.relative_to(died) for path in (died / "checkpoint").rglob("*.safetensors"))
    files = [(died / name).read_bytes() for name in names]
    folder = tmp_path / "run"
    recorder = Recorder()

    def go_on():
        simulation(directory=folder).run(resume=True, observers=[recorder])
        return "went on after an earlier round" if recorder.warnings else "went on: it was not needed any more"

    for case in range(many(60, 500)):
        shutil.copytree(died, folder)
        name = names[case // len(BYTES) % len(names)]
        (folder / name).write_bytes(mutated(case, files, BYTES))
        recorder.warnings.clear()
        line = outcomes.of((case, name), go_on)
        assert all(name.name in told for told in [line, *recorder.warnings] if told), (case, name)
        if not line:
            assert (folder / "devices.jsonl").read_bytes() == whole, (case, name)
        shutil.rmtree(folder)


@pytest.mark.usefixtures("unverified")
def test_damaged_records_are_refused_or_equal(simulation, whole, died, many, outcomes, tmp_path):
    content, folder = (died / "rounds.jsonl").read_bytes(), tmp_path / "run"

    def go_on():
        simulation(directory=folder).run(resume=True, observers=[Recorder()])
        return "went on"

    for case in range(many(12, 100)):
        shutil.copytree(died, folder)
        (folder / "rounds.jsonl").write_bytes(mutated(case, [content], BYTES))
        line = outcomes.of(case, go_on)
        assert "rounds.jsonl" in line if line else (folder / "devices.jsonl").read_bytes() == whole, case
        shutil.rmtree(folder)
