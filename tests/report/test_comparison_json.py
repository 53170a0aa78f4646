import json

import pytest

from odt_sim.persistence.run_folder import document
from odt_sim.report.comparison import compare
from odt_sim.report.records import comparison_document


@pytest.fixture(scope="module")
def written(sweep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    comparison = compare([sweep])
    return json.loads(document(comparison_document(comparison, folder))), comparison, folder


def test_file_has_every_figure_of_every_row(written):
    document, comparison, _ = written
    assert (document["metric"], document["higher_is_better"], document["target"]) == ("accuracy", True, None)
    assert [row["label"] for row in document["rows"]] == [row.label for row in comparison.rows]
    for found, row in zip(document["rows"], comparison.rows, strict=True):
        assert set(document["columns"]) <= set(found["values"])
        for key, spread in row.values.items():
            assert found["values"][key] == (spread and {"mean": spread.mean, "std": spread.std})
        assert found["seeds"] == [0, 1, 2]
        assert (found["chosen"], found["candidates"]) == (True, 1)


def test_file_has_the_pairs(written):
    document, comparison, _ = written
    rows = {row["label"]: row["paired"] for row in document["rows"]}
    assert rows["fedavg"] is None
    for row in comparison.paired:
        found = rows[row.label]
        assert (found["reference"], found["pairs"], found["seeds"]) == ("fedavg", 48, 3)
        assert (found["unit"], found["units"]) == ("seeds", 3)
        assert (found["difference"], tuple(found["interval"]), found["p_holm"]) == (
            row.difference,
            row.interval,
            row.p_holm,
        )
    assert document["interval"] == {"confidence": 0.95, "method": "student_t"}


def test_file_has_paths_relative_to_itself(written):
    document, _comparison, folder = written
    for row in document["rows"]:
        assert all((folder / path / "summary.json").is_file() for path in row["runs"])
    (failure,) = document["failures"]
    assert failure["label"] == "fedprox seed=1"
    assert (folder / failure["path"] / "failure.json").is_file()
