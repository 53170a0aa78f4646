import sys

import pytest
from written_runs import round_record, write_run

import odt_sim
from odt_sim.errors import CheckpointError, ConfigurationError
from odt_sim.persistence.run_folder import RunFolder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    root = tmp_path_factory.mktemp("sweep")
    for number, (strategy, seed) in enumerate([("fedavg", 0), ("fedavg", 1), ("fedper", 0)]):
        write_run(root / str(number), strategy, seed, devices=6, unseen=2, rounds=3, overrides=["train.epochs=2"])
    (root / "3").mkdir()
    RunFolder(root / "3").append_rounds(round_record(1, accuracy=0.5))
    return root


@pytest.fixture(scope="module")
def results(sweep):
    return odt_sim.Results.load(sweep)


def test_frames_begin_with_the_run_and_its_settings(results, sweep):
    assert results.runs == tuple(sweep / name for name in "0123")
    for frame in (results.rounds, results.devices, results.summaries):
        assert list(frame.columns[:4]) == ["run", "strategy", "seed", "overrides"]
        first = frame.iloc[0]
        assert (first.run, first.strategy, first.seed) == (str(sweep / "0"), "fedavg", 0)
        assert first.overrides == "train.epochs=2"


def test_rounds_hold_every_line_of_every_run(results, sweep):
    assert len(results.rounds) == 3 * 3 + 1
    lines = [record for name in "012" for record in RunFolder(sweep / name).rounds()]
    assert results.rounds.accuracy.tolist() == [line["accuracy"] for line in lines] + [0.5]
    assert results.rounds["round"].tolist() == [1, 2, 3] * 3 + [1]


def test_devices_hold_every_device_of_complete_runs(results, sweep):
    assert len(results.devices) == 3 * 6
    lines = [record for name in "012" for record in RunFolder(sweep / name).devices()]
    assert results.devices.accuracy.tolist() == [line["accuracy"] for line in lines]
    assert results.devices.groupby("strategy").seen.sum().to_dict() == {"fedavg": 8, "fedper": 4}


def test_summaries_have_nested_figures_by_dotted_name(results, sweep):
    worst = [RunFolder(sweep / name).summary().metrics["accuracy"]["worst"] for name in "012"]
    assert results.summaries["metrics.accuracy.worst"].tolist() == worst
    assert results.summaries.rounds.tolist() == [3, 3, 3]


def test_a_list_of_folders_is_refused(sweep):
    with pytest.raises(ConfigurationError, match=r"^Results\.load: .* found a list; .* Results\.load\(\*folders\)$"):
        odt_sim.Results.load([sweep])


def test_a_run_folder_and_several_folders_are_read(sweep):
    assert odt_sim.Results.load(str(sweep / "1")).runs == (sweep / "1",)
    assert odt_sim.Results.load(sweep / "2", sweep / "0").runs == (sweep / "2", sweep / "0")
    with pytest.raises(CheckpointError, match="no run found there"):
        odt_sim.Results.load(sweep / "missing")


def test_missing_pandas_is_one_line_with_the_pip_command(results, monkeypatch, sweep):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'odt_sim\[results\]'"):
        _ = odt_sim.Results.load(sweep).rounds


def test_comparison_merges_seeds_and_pairs_devices(results):
    frame = results.comparison(against="fedper")
    assert frame.label.tolist() == ["fedavg", "fedper"]
    assert frame.seeds.tolist() == [2, 1]
    means = results.summaries.groupby("strategy")["metrics.accuracy.weighted_mean"].mean()
    assert frame.weighted_mean.tolist() == pytest.approx([means["fedavg"], means["fedper"]])
    assert frame.paired_reference.fillna("").tolist() == ["fedper", ""]
    assert frame.paired_difference[0] == pytest.approx(
        (results.devices.query("seed == 0 and seen and strategy == 'fedavg'").accuracy.mean())
        - results.devices.query("seen and strategy == 'fedper'").accuracy.mean()
    )
    assert len(results.comparison(target=0.1).rounds_to_target) == 2
