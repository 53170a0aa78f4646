"""A missing or damaged state of an earlier round: the run resumes from a round that does not need it."""

import shutil

import pytest
from deaths import DeathError, DiesAfterRound, Recorder

from odt_sim import Fleet
from odt_sim.errors import CheckpointError
from odt_sim.strategies.shared_parts.fedper import FedPer

SETTINGS = {"rounds": 8, "evaluate_every": 1, "seed": 2, "fleet": Fleet(unseen=1, cohort=2)}
KEPT = [2, 5, 6]
"""The rounds kept after the sixth; the second validates best."""
LATER, EARLIEST = "devices/000/0.3.safetensors", "devices/000/6.1.safetensors"
"""A state that rounds 5 and 6 refer to, and one that all kept rounds refer to."""


@pytest.fixture(scope="module")
def whole(results, tmp_path_factory):
    """An undisturbed run."""
    return results(FedPer(), tmp_path_factory.mktemp("earlier") / "whole", **SETTINGS)


@pytest.fixture(scope="module")
def died(simulation, tmp_path_factory):
    """The folder of a run that died after its sixth round."""
    folder = tmp_path_factory.mktemp("earlier") / "died"
    with pytest.raises(DeathError):
        simulation(FedPer(), folder, **SETTINGS).run(observers=[DiesAfterRound(KEPT[-1])])
    assert sorted(int(path.name.split(".")[1]) for path in (folder / "checkpoint").glob("server.*")) == KEPT
    return folder


@pytest.fixture
def folder(died, tmp_path):
    return shutil.copytree(died, tmp_path / "run")


@pytest.fixture
def resume(simulation, folder):
    """Return a function that resumes the run and returns its rounds and warnings."""

    def run():
        recorder = Recorder()
        simulation(FedPer(), folder, **SETTINGS).run(resume=True, observers=[recorder])
        return recorder.rounds, recorder.warnings

    return run


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def test_missing_state_resumes_from_a_round_that_does_not_need_it(whole, folder, resume):
    path = folder / "checkpoint" / LATER
    path.unlink()
    assert resume() == (
        [3, 4, 5, 6, 7, 8],
        [f"{path}: no such checkpoint; restore it from a backup: the run resumes after round 2"],
    )
    type(whole).read(folder).assert_same_bits(whole)


def test_missing_state_that_all_rounds_need_is_refused_untouched(folder, resume):
    path = folder / "checkpoint" / EARLIEST
    path.unlink()
    (folder / "checkpoint" / LATER).unlink()
    before = contents(folder)
    with pytest.raises(CheckpointError, match=r"no such checkpoint; restore it from a backup$"):
        resume()
    assert contents(folder) == before


def test_missing_state_of_the_reported_round_is_refused_untouched(folder, resume):
    path = folder / "checkpoint" / EARLIEST
    path.unlink()
    (folder / "checkpoint" / "server.6.safetensors").write_bytes(b"damaged")
    before = contents(folder)
    message = f"^{path}: no such checkpoint; .*, or start a new run: round 2, which validates best, needs it$"
    with pytest.raises(CheckpointError, match=message):
        resume()
    assert contents(folder) == before


def test_damaged_state_is_reported_when_it_is_needed_and_the_advice_works(whole, folder, resume):
    path = folder / "checkpoint" / LATER
    path.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=f"^{path}: damaged .*, or remove it and resume from an earlier round"):
        resume()
    path.unlink()
    rounds, [warning] = resume()
    assert rounds == [3, 4, 5, 6, 7, 8]
    assert warning.endswith("the run resumes after round 2")
    type(whole).read(folder).assert_same_bits(whole)
