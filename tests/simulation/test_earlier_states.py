"""The state of a device that an earlier round wrote, missing or damaged: the run goes back to a round that does without."""

import shutil

import pytest
from deaths import DeathError, DiesAfterRound, Recorder

from odt_sim import Fleet
from odt_sim.errors import CheckpointError
from odt_sim.strategies.fedper import FedPer

SETTINGS = {"rounds": 8, "evaluate_every": 1, "seed": 2, "fleet": Fleet(unseen=1, cohort=2)}
KEPT = [2, 5, 6]
"""The rounds that are kept after the sixth; the second validates best."""
LATER, EARLIEST = "devices/000/0.3.safetensors", "devices/000/6.1.safetensors"
"""Two states: one that rounds 5 and 6 refer to, and one that all do up to the second."""


@pytest.fixture(scope="module")
def whole(results, tmp_path_factory):
    """A run that nothing disturbed."""
    return results(FedPer(), tmp_path_factory.mktemp("earlier") / "whole", **SETTINGS)


@pytest.fixture(scope="module")
def died(simulation, tmp_path_factory):
    """The folder of one that died after its sixth round."""
    folder = tmp_path_factory.mktemp("earlier") / "died"
    with pytest.raises(DeathError):
        simulation(FedPer(), folder, **SETTINGS).run(observers=[DiesAfterRound(KEPT[-1])])
    assert sorted(int(path.name.split(".")[1]) for path in (folder / "checkpoint").glob("server.*")) == KEPT
    return folder


@pytest.fixture
def folder(died, tmp_path):
    """A copy of it."""
    return shutil.copytree(died, tmp_path / "run")


@pytest.fixture
def resumed(simulation, folder):
    """Returns a function that goes on with it, and returns the rounds that came, and the warnings."""

    def go_on(path=folder):
        recorder = Recorder()
        simulation(FedPer(), path, **SETTINGS).run(resume=True, observers=[recorder])
        return recorder.rounds, recorder.warnings

    return go_on


def empty_commits(folder):
    """Does what a line advises where the fifth and the sixth round lack a state."""
    for round in (5, 6):
        (folder / "checkpoint" / f"server.{round}.safetensors").write_bytes(b"")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def test_where_one_is_missing_no_round_before_the_last_is_lost_unless_the_user_says_so(whole, folder, resumed):
    checkpoint = folder / "checkpoint"
    content = (checkpoint / LATER).read_bytes()
    (checkpoint / LATER).unlink()
    before = contents(folder)
    with pytest.raises(CheckpointError) as raised:
        resumed()
    assert str(raised.value) == (
        f"{checkpoint / LATER}: no such checkpoint; put it back if there is a copy, or empty server.5.safetensors and "
        f"server.6.safetensors in {checkpoint}/ and resume: the run then goes on after round 2"
    )
    assert contents(folder) == before
    copy = shutil.copytree(folder, folder.with_name("copy"))
    (copy / "checkpoint" / LATER).write_bytes(content)
    assert resumed(copy) == ([7, 8], [])
    empty_commits(folder)
    seen, warned = resumed()
    assert (seen, len(warned)) == ([3, 4, 5, 6, 7, 8], 2)
    for path in (folder, copy):
        type(whole).read(path).assert_same_bits(whole)


def test_where_no_kept_round_does_without_one_line_says_so_before_any_round(folder, resumed):
    for name in (LATER, EARLIEST):
        (folder / "checkpoint" / name).unlink()
    before = contents(folder)
    with pytest.raises(CheckpointError, match=rf"{LATER}: no such checkpoint; put it back if there is a copy$"):
        resumed()
    assert contents(folder) == before


def test_a_missing_state_of_the_round_to_report_is_told_before_any_round(folder, resumed):
    path = folder / "checkpoint" / EARLIEST
    path.unlink()
    (folder / "checkpoint" / "server.6.safetensors").write_bytes(b"damaged")
    before = contents(folder)
    message = f"^{path}: no such checkpoint; put .*, or start a new run: round 2, which validates best, needs it$"
    with pytest.raises(CheckpointError, match=message):
        resumed()
    assert contents(folder) == before


def test_a_damaged_one_is_told_when_it_is_needed_and_what_the_line_advises_works(whole, folder, resumed):
    path = folder / "checkpoint" / LATER
    path.write_bytes(b"x")
    message = (
        f"^{path}: damaged or no checkpoint .*, or remove that file and resume: the run goes on after a kept round"
    )
    with pytest.raises(CheckpointError, match=message):
        resumed()
    path.unlink()
    with pytest.raises(
        CheckpointError, match=r"or empty server\.5\.safetensors and server\.6\.safetensors in .*round 2$"
    ):
        resumed()
    empty_commits(folder)
    seen, warned = resumed()
    assert (seen, len(warned)) == ([3, 4, 5, 6, 7, 8], 2)
    type(whole).read(folder).assert_same_bits(whole)
