from pathlib import Path

import pytest

from odt_sim.errors import CheckpointError
from odt_sim.persistence.run import Run
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.labels import details, differing_overrides, find_runs, short_names


def make(path):
    path.mkdir(parents=True)
    RunFolder(path).write_failure("none", [])
    return path


def run(*overrides, path="run"):
    return Run(Path(path), (), (), None, None, overrides, {}, {})


def test_runs_are_found_in_natural_order(tmp_path):
    for name in ("10", "9", "1", "0", "2"):
        make(tmp_path / "sweep" / name)
    (tmp_path / "sweep" / "figures").mkdir()
    assert [path.name for path in find_runs([tmp_path])] == ["0", "1", "2", "9", "10"]


def test_a_run_given_twice_counts_once(tmp_path):
    path = make(tmp_path / "run")
    assert find_runs([path, tmp_path, tmp_path / "run" / ".." / "run"]) == [path]


def test_what_is_inside_a_run_is_no_run(tmp_path):
    outer = make(tmp_path / "run")
    make(outer / "checkpoint")
    assert find_runs([tmp_path]) == [outer]


@pytest.mark.parametrize("name", [".", "missing"])
def test_a_folder_without_runs_is_named(tmp_path, name):
    with pytest.raises(CheckpointError, match="no run found there"):
        find_runs([tmp_path / name])


def test_a_label_is_what_sets_a_run_apart():
    runs = [
        run("strategy=fedavg", "seed=0", "fleet.devices=50", "partition.alpha=0.1"),
        run("strategy=fedavg", "seed=1", "fleet.devices=50", "partition.alpha=1"),
        run("strategy=fedper", "seed=0", "fleet.devices=50"),
    ]
    keys = differing_overrides(runs)
    assert keys == ["partition.alpha"]
    assert [details([some], keys) for some in runs] == [{"partition.alpha": "0.1"}, {"partition.alpha": "1"}, {}]


def test_short_names_are_relative_to_the_common_folder():
    assert short_names([Path("/a/b/c/0"), Path("/a/b/d/0")]) == ["c/0", "d/0"]
