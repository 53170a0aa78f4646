from pathlib import Path

from odt_sim.persistence.run import Run
from odt_sim.report.run_settings import common_overrides, differing_overrides, short_paths


def run(*overrides, path="run"):
    return Run(Path(path), (), (), None, None, overrides, {}, {})


def test_label_holds_differing_overrides_only():
    runs = [
        run("strategy=fedavg", "seed=0", "fleet.devices=50", "partition.alpha=0.1"),
        run("strategy=fedavg", "seed=1", "fleet.devices=50", "partition.alpha=1"),
        run("strategy=fedper", "seed=0", "fleet.devices=50"),
    ]
    keys = differing_overrides(runs)
    assert keys == ["partition.alpha"]
    assert [common_overrides([some], keys) for some in runs] == [
        {"partition.alpha": "0.1"},
        {"partition.alpha": "1"},
        {},
    ]


def test_short_paths_are_relative_to_the_common_folder():
    assert short_paths([Path("/a/b/c/0"), Path("/a/b/d/0")]) == ["c/0", "d/0"]
