"""`odt-sim doctor` and `odt-sim inspect --html` as commands."""

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from dialects import generated

from odt_sim.cli.main import main
from odt_sim.model_page.drawing import placed


def test_page_says_where_the_file_trains(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copy(generated("closed").path, tmp_path / "app.tflite")
    assert main(["doctor", str(tmp_path / "app.tflite")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "trains on bare LiteRT yes tried here" in out
    assert (
        "trains in a browser (LiteRT.js) no takes any number of rows, which LiteRT.js cannot run; fix the number" in out
    )
    assert "D303 no signature returns the weights read only by infer" in out
    assert "do: Export a signature that returns every weight." in out


def test_json_names_findings_and_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    path = generated("train_epoch").path
    assert main(["doctor", "--json", "--signature", "train=train_epoch", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["roles"]["train"] == "train_epoch"
    assert found["verdicts"]["litert"] == {"trains": True, "reason": "tried here"}
    assert found["verdicts"]["browser"]["trains"] is False
    assert {finding["id"] for finding in found["findings"]} == {"D204"}
    assert found["measured"]["train_ms"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "grouped"])
def test_own_exports_with_slots_are_sound(
    name: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "app.tflite").write_bytes(request.getfixturevalue(name).content)
    assert main(["doctor", "--json", str(tmp_path / "app.tflite")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["roles"] == {role: role for role in ("train", "infer", "parameters", "restore")}
    assert found["verdicts"]["browser"]["trains"]
    assert found["measured"]["loss"].startswith("sparse_categorical_crossentropy")
    assert main(["inspect", str(tmp_path / "app.tflite"), "--html", str(tmp_path / "page.html")]) == 0
    assert "does not run here" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--signature", "train"], "--signature: expected ROLE=NAME, such as train=train_epoch, found 'train'"),
        (["--signature", "train=fit"], "no signature 'fit'"),
        ([], "cannot read the model"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(generated("numbered").path) if arguments else "missing.tflite"
    assert main(["doctor", path, *arguments]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def test_page_of_a_file_is_self_contained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["inspect", str(generated("not_a_number").path), "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"page: {page}\n"
    text = page.read_text()
    assert not re.search(r"(src|href)=", text)
    assert "1 NaN or infinite" in text
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    assert data["graphs"].keys() == {"train", "infer", "parameters", "restore"}
    train = data["graphs"]["train"]
    assert {"x", "y", "loss", "hidden/kernel"} <= {node["label"] for node in train["nodes"]}
    assert {node["runner"] for node in train["nodes"]} >= {"xnnpack", "border"}
    assert all(one < other for one, other in train["edges"])


def test_page_does_not_overwrite_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    app = tmp_path / "app.tflite"
    shutil.copy(generated("closed").path, app)
    assert main(["inspect", str(app), "--html", str(app)]) == 1
    assert capsys.readouterr().err == (
        f"error: {app}: is the input file, which writing would overwrite; choose another output\n"
    )
    assert app.read_bytes() == generated("closed").path.read_bytes()


def test_page_shows_flex_ops(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["inspect", str(generated("checkpoint_scalar").path), "--html", str(page)]) == 0
    assert re.search(r"Flex \(TensorFlow\) 1<br>", page.read_text())


def test_drawing_has_no_overlaps_and_edges_go_down() -> None:
    edges = [(0, 2), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (0, 5), (6, 5)]
    points = placed(7, edges)
    assert all(points[one][1] < points[other][1] for one, other in edges)
    for layer in {y for _, y in points}:
        xs = sorted(x for x, y in points if y == layer)
        assert all(right - left >= 189 for left, right in itertools.pairwise(xs))
