"""Rows of the user's files: how they are read, and which of them a model accepts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import module

from odt_sim import TrainableModel
from odt_sim.device.examples import Examples
from odt_sim.errors import DataError
from odt_sim.phone.routes import described

FORM = """
  const form = new m.RowForm({ signatures: { train: { inputs: given.inputs } } }, given.about);
  try { form.parts({ where: "Line 1", numbers: given.numbers }) } catch (error) { return error.message }
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_npy_files_are_read(dtype: str, harness: Any, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    given = list((tmp_path / "a.npy").read_bytes())
    expected = [{"where": f"Row {number}", "numbers": row} for number, row in enumerate(array.tolist(), 1)]
    assert module(harness, "rows", "return m.fromNpy(Uint8Array.from(given))", given) == expected


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("1,2\n3,4\n", {"Line 1": [1, 2], "Line 2": [3, 4]}),
        ("a;b\r\n\r\n1;2\r\n", {"Line 3": [1, 2]}),
        (",b\n-1.5e3\t2", {"Line 2": [-1500, 2]}),
        ("", {}),
    ],
)
def test_csv_files_are_read(text: str, rows: dict[str, list[float]], harness: Any) -> None:
    found = module(harness, "rows", "return m.fromCsv(given)", text)
    assert {row["where"]: row["numbers"] for row in found} == rows


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1,2,nan\n1,2,3", "Line 1, column 3: expected a number, found nan; fill the cell, or remove the line."),
        ("a,b\n\n1,\n", "Line 3, column 2: expected a number, found nothing; fill the cell, or remove the line."),
        ("a,b\nc,d\n", "Line 2, column 1: expected a number, found c; fill the cell, or remove the line."),
    ],
)
def test_cell_without_a_number_is_named(text: str, error: str, harness: Any) -> None:
    body = "try { m.fromCsv(given) } catch (error) { return error.message }"
    assert module(harness, "rows", body, text) == error


def refused(harness: Any, model: TrainableModel, numbers: list[float]) -> str | None:
    """Return the error of the page for a row."""
    tensors = (*model.inputs.values(), *model.targets.values())
    inputs = [{"name": t.name, "shape": list(t.shape), "dtype": t.dtype} for t in tensors]
    about = {"name": model.name, **described(model)}
    error: str | None = module(harness, "row_form", FORM, {"inputs": inputs, "about": about, "numbers": numbers})
    return error


@pytest.mark.parametrize(
    ("name", "x", "y", "column"),
    [
        ("dropout", [1, 99, 2, 3], 1, 2),
        ("dropout", [1, 2, 3, -3], 1, 4),
        ("dropout", [1, 2, 3, 9], 3, 5),
        ("adam", [0.5] * 6, -1, 7),
        ("binary", [0.5] * 6, 2, 7),
        ("one_hot", [0.5] * 6, [0.5, 1.5], 8),
        ("several_labels", [0.5] * 6, [0.5, -0.5, 1], 8),
    ],
)
def test_example_out_of_range_is_refused_in_the_words_of_python(
    name: str, x: list[float], y: Any, column: int, harness: Any, request: pytest.FixtureRequest
) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    with pytest.raises(DataError) as error:
        Examples.checked(model, np.array([x], model.x.dtype), np.array([y]), "own")
    words = str(error.value).partition(": ")[2]
    assert refused(harness, model, [*x, *np.ravel(y).tolist()]) == f"Line 1, column {column}: {words}."


@pytest.mark.parametrize(
    ("name", "numbers", "error"),
    [
        ("dropout", [1, 1.7, 2, 3, 1], "Line 1, column 2: expected int32, found 1.7; convert it."),
        ("adam", [0.5] * 6 + [0.5], "Line 1, column 7: expected int32, found 0.5; convert it."),
        ("regression", [1e39] + [0.5] * 7, "Line 1, column 1: expected float32, found 1e+39; rescale the column, or "),
        ("regression", [0.5] * 7, "Line 1 has 7 numbers; the model takes 6 inputs, then 2 targets."),
    ],
)
def test_row_that_is_not_of_the_form_is_refused(
    name: str, numbers: list[float], error: str, harness: Any, request: pytest.FixtureRequest
) -> None:
    assert (refused(harness, request.getfixturevalue(name), numbers) or "").startswith(error)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("dropout", [0, 9, 1, 1, 2]), ("regression", [-3e38] * 8), ("one_hot", [0.5] * 6 + [0.2, 0.8])],
)
def test_row_in_range_is_taken(name: str, numbers: list[float], harness: Any, request: pytest.FixtureRequest) -> None:
    assert refused(harness, request.getfixturevalue(name), numbers) is None


def test_ignored_label_is_taken(harness: Any, adam: TrainableModel) -> None:
    assert adam.manifest
    outputs = (replace(adam.outputs[0], ignore_class=-1),)
    model = replace(adam, manifest=replace(adam.manifest, outputs=outputs))
    assert refused(harness, model, [0.5] * 6 + [-1]) is None
    assert "label -2 is out of range" in (refused(harness, model, [0.5] * 6 + [-2]) or "")
