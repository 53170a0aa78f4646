"""Comparisons of runs from other sweeps, machines and versions."""

import json

import pytest
from written_runs import write_run

from odt_sim.persistence.run_folder import SUMMARY, RunFolder
from odt_sim.report.comparison import compare
from odt_sim.report.description import settings
from odt_sim.report.page import page_html
from odt_sim.report.provenance import differences
from odt_sim.report.terminal import differences_text

HERE = {"odt_sim": "0.2.0", "ai-edge-litert": "2.1.5", "numpy": "2.4.0", "Python": "3.11.2"}
HERE |= {"platform": "Linux x86_64", "processor": "AMD EPYC"}
SETTINGS = {"data": "digits", "data.digest": "0a", "partition": "iid", "model": "mlp 111111111111"}


def write(path, strategy="fedavg", seed=0, *, recorded=None, devices=20, hydra=False, **changed):
    """Write a run with settings and with the provenance in its summary."""
    own = {"strategy": strategy, **SETTINGS, **{key.replace("__", "."): text for key, text in changed.items()}}
    write_run(path, strategy, seed, devices=devices, hydra=hydra, settings=own)
    default = {"environment": HERE, "model_digest": "f" * 16, "split_digest": f"split{seed}"}
    summary = json.loads((path / SUMMARY).read_text())
    RunFolder(path).write_summary({**summary, **(default if recorded is None else recorded)})
    return path


def test_runs_of_one_sweep_do_not_differ(tmp_path):
    for seed in (0, 1):
        for strategy in ("local", "fedavg"):
            write(tmp_path / f"{strategy}{seed}", strategy, seed)
    comparison = compare([tmp_path])
    assert differences(comparison) == []
    assert differences_text(comparison) is None
    assert "Differences between" not in page_html(comparison, [])
    assert settings(comparison)["versions"] == "odt_sim 0.2.0, ai-edge-litert 2.1.5, numpy 2.4.0, Python 3.11.2"
    assert settings(comparison)["machine"] == "Linux x86_64, AMD EPYC"


def test_versions_and_machines_are_named_with_their_configurations(tmp_path):
    write(tmp_path / "a" / "0")
    there = {**HERE, "odt_sim": "0.1.0", "platform": "Darwin arm64"}
    recorded = {"environment": there, "model_digest": "f" * 16, "split_digest": "split0"}
    write(tmp_path / "b" / "0", "fedper", recorded=recorded)
    comparison = compare([tmp_path / "a", tmp_path / "b"])
    lines = ["odt_sim: 0.2.0 (fedavg); 0.1.0 (fedper)", "platform: Linux x86_64 (fedavg); Darwin arm64 (fedper)"]
    assert differences(comparison) == lines
    assert all(line in page_html(comparison, []) for line in lines)
    assert differences_text(comparison).plain == "\n".join(f"differs  {line}" for line in lines)
    (pair,) = comparison.paired
    assert pair.pairs == 16  # equal examples: other versions and machines are part of what is compared


def test_seeds_of_one_configuration_on_two_machines_differ(tmp_path):
    write(tmp_path / "0")
    there = {"environment": {**HERE, "platform": "Darwin arm64"}, "model_digest": "f" * 16, "split_digest": "split1"}
    write(tmp_path / "1", seed=1, recorded=there)
    assert differences(compare([tmp_path])) == ["platform: Linux x86_64 (fedavg); Darwin arm64 (fedavg)"]


def test_seeds_that_ran_on_other_code_of_one_version_differ(tmp_path):
    for seed, code in enumerate(("1f2e3d4c5b6a", "1f2e3d4c5b6a", "6a5b4c3d2e1f")):
        recorded = {"environment": {**HERE, "code": code}, "model_digest": "f" * 16, "split_digest": f"split{seed}"}
        write(tmp_path / str(seed), seed=seed, recorded=recorded)
    assert differences(compare([tmp_path])) == ["odt_sim code: 1f2e3d4c5b6a (fedavg); 6a5b4c3d2e1f (fedavg)"]


@pytest.mark.parametrize("hydra", [False, True])
def test_exports_of_one_model_for_several_strategies_are_one_model(tmp_path, hydra):
    for number, strategy in enumerate(("local", "fedavg", "fedper")):
        write(tmp_path / strategy, strategy, model=f"mlp {number}", hydra=hydra)
    comparison = compare([tmp_path])
    assert [row.label for row in comparison.rows] == ["fedavg", "fedper", "local"]
    assert differences(comparison) == []
    fedper = comparison.rows[1].runs[0]
    assert None not in [device["local_accuracy"] for device in fedper.devices]  # joined with the local-only run


def test_exports_of_one_model_have_calibrations_of_their_own(tmp_path):
    for number, strategy in enumerate(("local", "fedavg", "ditto")):
        write(tmp_path / strategy, strategy, model=f"mlp {number}", fleet__profiles__calibration=f"c{number}")
    comparison = compare([tmp_path])
    assert [row.label for row in comparison.rows] == ["ditto", "fedavg", "local"]
    ditto = comparison.rows[0].runs[0]
    assert None not in [device["local_accuracy"] for device in ditto.devices]


def test_calibrations_of_one_file_on_two_machines_stay_apart(tmp_path):
    for number in range(2):
        write(tmp_path / str(number), seed=number, fleet__profiles__calibration=f"c{number}")
    assert [row.label for row in compare([tmp_path]).rows] == [
        "fedavg fleet.profiles.calibration=c0",
        "fedavg fleet.profiles.calibration=c1",
    ]


def test_files_of_one_strategy_stay_apart(tmp_path):
    """Differences that only training shows, such as a Dropout rate, are not part of the digest."""
    for number in range(2):
        write(tmp_path / str(number), seed=number, model=f"mlp {number}")
    assert [row.label for row in compare([tmp_path]).rows] == [
        "fedavg model.fingerprint=0",
        "fedavg model.fingerprint=1",
    ]


def test_models_with_other_weights_differ(tmp_path):
    write(tmp_path / "0")
    other = {"environment": HERE, "model_digest": "e" * 16, "split_digest": "split0"}
    write(tmp_path / "1", "fedper", recorded=other, model="mlp 2")
    assert differences(compare([tmp_path])) == ["model: mlp ffffffffffff (fedavg); mlp eeeeeeeeeeee (fedper)"]


def test_other_split_of_the_same_data_is_not_paired(tmp_path):
    for seed in (0, 1):
        write(tmp_path / f"a{seed}", seed=seed)
        other = {"environment": HERE, "model_digest": "f" * 16, "split_digest": f"other{seed}"}
        write(tmp_path / f"b{seed}", "fedper", seed, recorded=other)
    comparison = compare([tmp_path])
    (pair,) = comparison.paired
    assert pair.pairs == 0
    assert pair.refused.endswith("with seed 0 the devices have different examples or splits")
    (difference,) = differences(comparison)
    assert difference.startswith("data split with seed 0: ")


def test_sweeps_with_the_same_seeds_are_rows_by_folder(tmp_path):
    for sweep in ("monday", "tuesday"):
        for seed in (0, 1):
            write(tmp_path / sweep / str(seed), seed=seed)
    rows = compare([tmp_path / "monday", tmp_path / "tuesday"]).rows
    assert [(row.label, [run.complete.seed for run in row.runs]) for row in rows] == [
        ("fedavg (monday)", [0, 1]),
        ("fedavg (tuesday)", [0, 1]),
    ]
