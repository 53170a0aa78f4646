"""`run.resume=auto`: a scheduler may always give the same command line."""

import re
from threading import Thread

import pytest
from commands import FEW, lines, runs

from odt_sim.persistence.lock import locked

FAILS_ONCE = ["strategy._target_=mine.FailsOnce", *FEW, "run.rounds=3", "run.resume=auto"]


def test_the_same_command_line_begins_goes_on_and_begins_again(odt_sim, folder):
    code, _, error = odt_sim("run", *FAILS_ONCE)
    assert code == 1
    assert error.startswith("no unfinished run of this configuration; starting a new one in outputs/"), error
    [run] = runs(folder)
    odt_sim("run", *FEW, "run.rounds=1")  # a later one that ended, and one of another configuration that did not:
    odt_sim("run", *FAILS_ONCE[:-1], "seed=1", "train.learning_rate=1e38")
    before = runs(folder)
    code, _, error = odt_sim("run", *FAILS_ONCE, "tracker=tensorboard")
    assert code == 0
    assert error.startswith(f"resuming {run.relative_to(folder)}\n"), error
    assert [row["round"] for row in lines(run / "rounds.jsonl")] == [1, 2, 3]
    assert (run / "tensorboard").is_dir()
    assert runs(folder) == before
    assert odt_sim("run", *FAILS_ONCE)[0] == 0
    assert len(runs(folder)) == len(before) + 1


@pytest.mark.parametrize("change", ["seed=1", "run.rounds=4", "train.epochs=2"])
def test_another_configuration_is_another_run(odt_sim, folder, change):
    odt_sim("run", *FAILS_ONCE)
    odt_sim("run", *FAILS_ONCE, change)
    assert len(runs(folder)) == 2


def test_a_folder_that_is_named_is_gone_on_with_if_it_is_of_this_configuration(odt_sim, folder):
    there = [*FAILS_ONCE, "hydra.run.dir=out"]
    assert odt_sim("run", *there)[0] == 1
    code, _, error = odt_sim("run", *there, "seed=1")
    assert code == 1
    assert re.search(r"^error: \S+out: holds a run of another configuration; resume it with run\.resume=", error, re.M)
    code, _, error = odt_sim("run", *there)
    assert code == 0
    assert re.match("resuming out\n", error)
    assert odt_sim("run", "run.resume=out")[0] == 0  # its own overrides do not stand in the way


def test_a_sweep_does_not_go_on(odt_sim, folder):
    code, _, error = odt_sim("run", "-m", *FEW, "run.resume=auto", "seed=0,1")
    assert code == 1
    assert error == "error: run.resume: resumes a single run, such as one job of a sweep; leave out -m\n"


def test_a_run_that_goes_on_elsewhere_is_left_alone(odt_sim, folder):
    assert odt_sim("run", *FAILS_ONCE)[0] == 1
    [run] = runs(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = []

    def other():
        found.append(odt_sim("run", *FAILS_ONCE))

    with locked(run, pytest.fail):
        thread = Thread(target=other)
        thread.start()
        thread.join()
    [(code, _, error)] = found
    assert code == 1
    assert error.endswith(f"error: {run}: another process runs in it now; wait until that ends, or end it\n")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
