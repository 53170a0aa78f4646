import json

import pytest
from written_runs import round_record, write_run

from odt_sim.errors import CheckpointError
from odt_sim.persistence.run import find_runs, find_started_runs, load_run
from odt_sim.persistence.run_folder import RunFolder


def test_run_is_read_back_whole(tmp_path):
    run = load_run(write_run(tmp_path / "run", "fedper", 7, overrides=["fleet.devices=20", "+extra=a=b"]))
    assert (run.name, run.summary["seed"], run.error) == ("fedper", 7, None)
    assert (len(run.rounds), len(run.devices)) == (10, 20)
    assert run.overridden == {"strategy": "fedper", "seed": "7", "fleet.devices": "20", "extra": "a=b"}
    assert run.choices["partition"] == "dirichlet"
    assert run.config["run"]["storage"] == "${hydra:runtime.output_dir}"  # unresolved


def test_run_from_python_needs_no_hydra(tmp_path):
    run = load_run(write_run(tmp_path / "run", "fedavg", hydra=False))
    assert (run.name, run.overrides, run.overridden, run.config, run.choices) == ("fedavg", (), {}, {}, {})


def test_failed_run_has_its_error(tmp_path):
    RunFolder(tmp_path).write_failure("a worker died", ["strategy=fedprox", "seed=2"])
    run = load_run(tmp_path)
    assert (run.summary, run.error, run.name) == (None, "a worker died", "fedprox")
    assert run.overridden["seed"] == "2"


def test_interrupted_run_counts_as_failed(tmp_path):
    RunFolder(tmp_path).append_rounds(round_record(1))
    run = load_run(tmp_path)
    assert len(run.rounds) == 1
    assert "summary.json is missing" in run.error
    assert run.name == tmp_path.name


def test_failure_after_a_completed_run_keeps_both(tmp_path):
    path = write_run(tmp_path / "run")
    RunFolder(path).write_failure("the second half failed", [])
    run = load_run(path)
    assert run.summary is not None
    assert run.error == "the second half failed"


def test_damaged_settings_are_named(tmp_path):
    path = write_run(tmp_path / "run")
    (path / ".hydra" / "overrides.yaml").write_text("- [unclosed\n")
    with pytest.raises(CheckpointError, match=r"overrides\.yaml: cannot be read") as caught:
        load_run(path)
    assert "\n" not in str(caught.value)


def make(path):
    path.mkdir(parents=True)
    RunFolder(path).write_failure("none", [])
    return path


def test_runs_are_found_in_natural_order(tmp_path):
    for name in ("10", "9", "1", "0", "2"):
        make(tmp_path / "sweep" / name)
    (tmp_path / "sweep" / "figures").mkdir()
    assert [path.name for path in find_runs([tmp_path])] == ["0", "1", "2", "9", "10"]


def test_repeated_folder_counts_once(tmp_path):
    path = make(tmp_path / "run")
    assert find_runs([path, tmp_path, tmp_path / "run" / ".." / "run"]) == [path]


def test_runs_behind_links_are_found(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / "elsewhere" / name)
    (tmp_path / "chosen").mkdir()
    (tmp_path / "chosen" / "best").symlink_to(tmp_path / "elsewhere" / "two")
    (tmp_path / "chosen" / "again").symlink_to(tmp_path / "chosen")
    assert find_runs([tmp_path / "chosen"]) == [tmp_path / "chosen" / "best"]


def test_trials_of_a_tuning_with_winners_are_left_out(tmp_path):
    for path in ("search/fedavg/0", "tuned/fedavg-trial-0/0"):
        make(tmp_path / path)
    assert len(find_runs([tmp_path])) == 2
    (tmp_path / "task.json").touch()
    assert find_runs([tmp_path]) == [tmp_path / "tuned/fedavg-trial-0/0"]
    assert find_runs([tmp_path / "search"]) == [tmp_path / "search/fedavg/0"]
    assert len(find_started_runs(tmp_path)) == 2


def test_runs_of_former_winners_are_left_out(tmp_path):
    for name in ("fedavg-trial-0", "fedavg-trial-3", "ditto-trial-1"):
        make(tmp_path / "tuned" / name / "0")
    assert len(find_runs([tmp_path])) == 3
    (tmp_path / "tuning.json").write_text(json.dumps({"winners": [{"strategy": "fedavg", "trial": 3}]}))
    tuned = tmp_path / "tuned"
    assert find_runs([tmp_path]) == [tuned / "ditto-trial-1/0", tuned / "fedavg-trial-3/0"]
    assert find_runs([tuned / "fedavg-trial-0"]) == [tuned / "fedavg-trial-0/0"]
    assert len(find_started_runs(tmp_path)) == 3


def test_folders_inside_a_run_are_no_runs(tmp_path):
    outer = make(tmp_path / "run")
    make(outer / "checkpoint")
    assert find_runs([tmp_path]) == [outer]


@pytest.mark.parametrize("name", [".", "missing"])
def test_folder_without_runs_is_named(tmp_path, name):
    with pytest.raises(CheckpointError, match="no run found there"):
        find_runs([tmp_path / name])
