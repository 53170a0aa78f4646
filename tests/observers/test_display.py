"""The progress line of a run in terminals of any width, and the lines after it."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from written_runs import BLANK

from odt_sim.observers.base import RunInfo
from odt_sim.observers.display import Display
from odt_sim.persistence.records import RoundRecord
from odt_sim.persistence.summary import Summary


def record(round: int, excluded: Any = (), **more: Any) -> RoundRecord:
    reasons = {"excluded": len(excluded), "excluded_reasons": dict.fromkeys(excluded, "loss not finite")}
    common = {"strategy": "fedavg", "devices": 3, "bytes_down": 0, "bytes_up": 0, "seconds": 0.5, "train_loss": 1.5}
    return RoundRecord.of({**common, "round": round, **reasons, **more})


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that displays a run and returns the lines on standard error."""

    def show(
        *records: Any,
        name: str = "fedavg",
        rounds: int = 2,
        width: int = 120,
        finished: bool = True,
        stopped: str | None = None,
    ) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        with closing(Display()) as display:
            display.on_begin(RunInfo(name, {}, tmp_path, rounds))
            for each in records:
                display.on_round(each)
            display.on_end(Summary.of({**BLANK, "rounds": len(records), "stopped": stopped}) if finished else None)
        return [line.rstrip() for line in capsys.readouterr().err.splitlines()]

    return show


def test_line_shows_rounds_time_and_figures(shown: Any) -> None:
    line, _ = shown(record(1, accuracy=0.25), record(2, excluded=(3, 4)), name="fedavg seed=[1]")
    assert line.startswith("fedavg seed=[1] ")
    assert line.split(maxsplit=3)[3] == "2/2 0:00:00 accuracy 0.250  2 excluded  train loss 1.5"


def test_log_file_gets_a_plain_line_per_minute(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 59.0, 60.0, 60.0, 90.0])
    monkeypatch.setattr("odt_sim.observers.display.monotonic", lambda: next(times))
    name = "fedavg model=digits_mlp partition=pathological fleet.devices=[50]"
    lines = shown(record(1, accuracy=0.25), record(2, accuracy=0.5), record(3), name=name, rounds=30, width=80)
    assert lines[0] == f"{name} 2/30  accuracy 0.500  train loss 1.5"
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("seconds", "clock"),
    [(0.047, "second 0.047"), (42.0, "second 42.0"), (90.0, "minute 1.5"), (604800.0, "hour 168.0")],
)
def test_simulated_time_is_shown_in_a_unit_of_its_size(shown: Any, seconds: float, clock: str) -> None:
    [line] = shown(record(1, accuracy=0.25, simulated_end=seconds), rounds=1)
    assert f"accuracy 0.250  {clock}  train loss" in line


def test_run_without_a_summary_is_unfinished(shown: Any) -> None:
    assert shown(record(1), finished=False)[-1].endswith("1/2 0:00:00 unfinished")


def test_run_that_fails_before_its_first_round_leaves_no_line(shown: Any) -> None:
    assert shown(finished=False) == []


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_narrow_terminal_keeps_strategy_and_accuracy(shown: Any, width: int) -> None:
    name = "fedavg_finetune model=softmax seed=0 fleet.devices=50"
    [line] = shown(record(39, accuracy=0.25), name=name, rounds=40, width=width)
    assert len(line) <= width
    assert line.startswith("fedavg_finetune")
    assert "39/40" in line
    assert "accuracy 0.250" in line
    assert ("train loss 1.5" in line) == (width >= 60)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize(("rounds", "loss"), [(40, 0.1234), (100, 1.234), (1000, 1.234e-05)])
@pytest.mark.parametrize("excluded", [(), (3, 4)])
def test_no_figure_is_cut(shown: Any, width: int, rounds: int, loss: float, excluded: Any) -> None:
    name = "fedavg_finetune model=softmax seed=0 fleet.devices=50"
    last = record(rounds, excluded, accuracy=0.25, train_loss=loss)
    line = shown(last, name=name, rounds=rounds, width=width)[0]
    figures = line[line.index("accuracy") :].split("  ")
    assert figures == [f for f in ("accuracy 0.250", "2 excluded", f"train loss {loss:.4g}") if f in figures]
    assert len(line) <= width
    if width >= 80 and not excluded and rounds < 1000:
        assert figures[-1].startswith("train loss")


def test_round_without_a_loss_shows_the_exclusions(shown: Any) -> None:
    assert shown(record(1, excluded=(0,), train_loss=None), rounds=1)[0].endswith("1/1 0:00:00 1 excluded")


def test_excluded_devices_are_named_after_the_run(shown: Any) -> None:
    rounds = [record(1, (7,)), record(2, (3, 7)), record(3, excluded_reasons={"7": "timed out"})]
    assert shown(*rounds)[1:] == [
        "excluded device 3 (loss not finite in 1 round), 7 (loss not finite in 2 rounds, timed out in 1 round); "
        "see rounds.jsonl"
    ]
    assert "9 (loss not finite in 1 round) and 20 more; see rounds.jsonl" in shown(record(1, range(30)))[1]


def test_devices_that_were_not_evaluated_are_named(shown: Any, tmp_path: Path) -> None:
    rows = [{"device": 0}, {"device": 3, "not_evaluated": "timed out"}]
    common = {"seen": True, "train_examples": 1, "examples": 1}
    (tmp_path / "devices.jsonl").write_text("".join(json.dumps(row | common) + "\n" for row in rows))
    assert shown(record(1))[1:] == ["not evaluated device 3 (timed out)"]


def test_quarantined_device_is_named_with_the_reason(shown: Any) -> None:
    lines = shown(record(1, excluded=(3, 4), newly_quarantined=[4]))
    assert "warning quarantined after round 1: device 4 (loss not finite)" in lines


@pytest.mark.parametrize(
    ("stopped", "expected"),
    [
        (
            "validation accuracy did not improve in 2 evaluations, round 8",
            "validation accuracy did not improve in 2 evaluations",
        ),
        ("loss [nan] in round 8", "loss [nan] in round 8"),
    ],
)
def test_early_stop_is_printed_with_its_reason(shown: Any, stopped: str, expected: str) -> None:
    lines = shown(*map(record, range(1, 9)), rounds=20, stopped=stopped)
    assert lines[1:] == [f"stopped after round 8: {expected}"]


NOTEBOOK = """
from pathlib import Path
from written_runs import round_record
from odt_sim.observers.base import Observers, RunInfo

observers = Observers(None)
observers.on_begin(RunInfo("fedavg", {}, Path("."), rounds=2))
observers.on_round(round_record(1, accuracy=0.25))
observers.on_round(round_record(2, accuracy=0.5))
observers.on_end(None)
"""


@pytest.mark.slow
def test_notebook_shows_one_line_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    NotebookClient(notebook, timeout=60).execute()
    [output] = notebook.cells[0].outputs
    line = output["data"]["text/plain"]
    assert line.startswith("fedavg ")
    assert line.endswith("2/2 0:00:00 unfinished")
