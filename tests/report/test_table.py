import itertools
import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from written_runs import write_run

from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.comparison import compare
from odt_sim.report.terminal import comparison_text, paired_text


def render(*folders, width=100, color=False):
    console = Console(file=StringIO(), width=width, force_terminal=color, color_system="truecolor" if color else None)
    console.print(comparison_text(compare(folders), width))
    return console.file.getvalue()


def render_pairs(*folders, width=100, **options):
    console = Console(file=StringIO(), width=width)
    console.print(paired_text(compare(folders, **options), width))
    return console.file.getvalue()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_table_fits_100_columns_and_cuts_nothing(tmp_path, task):
    names = ["local", "fedavg", "fedavg_finetune", "fedper", "a_strategy_with_a_rather_long_name"]
    for seed in (0, 1):
        for name in names:
            write_run(tmp_path / f"{name}{seed}", name, seed, task=task)
    text = render(tmp_path)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for name in names[:4]:
        assert re.search(rf"^{name} ", text, re.MULTILINE)
    folded = "".join(line.split(" ")[0] for line in text.splitlines())
    assert names[4] in folded  # folded over two lines, but whole


def test_overrides_stand_below_the_name(tmp_path):
    for number, alpha in enumerate((0.1, 1.0)):
        write_run(tmp_path / str(number), "fedavg_finetune", overrides=[f"partition.alpha={alpha}"])
    text = render(tmp_path)
    assert re.search(r"^fedavg_finetune .*\n  partition\.alpha=0\.1 ", text, re.MULTILINE)


def test_table_shows_the_figures_of_the_comparison(tmp_path):
    write_run(tmp_path / "a", "local")
    write_run(tmp_path / "b", "fedper")
    rows = {row.label: row for row in compare([tmp_path]).rows}
    text = render(tmp_path, width=140)
    for name, row in rows.items():
        line = re.search(rf"^{name} .*$", text, re.MULTILINE)[0]
        cells = [cell.rstrip("*") for cell in line.split()[1:]]
        assert cells[:5] == [
            f"{100 * row.values[key].mean:.1f}" for key in ("weighted_mean", "mean", "std", "bottom_decile", "worst")
        ]
    assert re.search(r"^fedper +\d+\.\d\*", text, re.MULTILINE)  # the better mean has the star
    assert not re.search(r"^local +\d+\.\d\*", text, re.MULTILINE)


def test_failed_run_is_named_with_its_error(sweep):
    text = " ".join(render(sweep).split())
    assert "failed fedprox seed=1: fedprox needs 'set_gradient_offset'; export the model again" in text


def test_caption_explains_shown_columns_only(tmp_path):
    write_run(tmp_path / "local", "local", references=False)
    alone = render(tmp_path)
    assert "best in its column" not in alone
    assert "hurt:" not in alone
    write_run(tmp_path / "fedavg")
    assert "* best in its column" in render(tmp_path)
    assert "hurt:" in render(tmp_path)


def test_caption_promises_an_interval_only_where_one_is_shown(tmp_path):
    write_run(tmp_path / "a", "fedavg", 0)
    assert "global model, with its 95 % CI" in " ".join(render(tmp_path).split())
    write_run(tmp_path / "b", "fedavg", 1)  # too few seeds for an interval
    assert "hurt: % of devices" in render(tmp_path)
    assert "with its 95 % CI" not in " ".join(render(tmp_path).split())


def test_markup_in_an_override_is_shown_as_text(tmp_path):
    for number, name in enumerate(("[red]x[/red]", "plain")):
        write_run(tmp_path / str(number), "fedavg", overrides=[f"data.name={name}"])
    assert "data.name=[red]x[/red]" in render(tmp_path)


def test_best_value_is_bold(tmp_path):
    write_run(tmp_path / "a", "local")
    write_run(tmp_path / "b", "fedper")
    assert re.search(r"\x1b\[1;32m\d+\.\d\*", render(tmp_path, color=True))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_narrow_terminal_keeps_names_and_the_main_columns(tmp_path, width):
    for name in ("local", "fedavg_finetune"):
        for seed in (0, 1):
            write_run(tmp_path / f"{name}{seed}", name, seed, task="regression")
    text = render(tmp_path, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "weighted" in text
    assert "…" not in text
    assert re.search(r"^fedavg_finetune ", text, re.MULTILINE)


def test_failures_alone_are_listed_once_for_each_error(tmp_path):
    failed = {
        "local": "no memory",
        "fedavg": "no file",
        **dict.fromkeys(("ditto", "fedper", "ifca", "moon"), "no file"),
    }
    for name, error in failed.items():
        (tmp_path / name).mkdir()
        RunFolder(tmp_path / name).write_failure(error, [f"strategy={name}"])
    lines = ["failed  ditto, fedavg, fedper and 2 more: no file", "failed  local: no memory"]
    assert render(tmp_path).splitlines() == lines


def test_pairs_show_the_figures_of_the_comparison(sweep):
    rows = {row.label: row for row in compare([sweep]).paired}
    text = render_pairs(sweep)
    assert "Paired differences from fedavg: percentage points of accuracy" in text
    for name, row in rows.items():
        difference, low, _, high, p, *counts = re.search(rf"^{name} .*$", text, re.MULTILINE)[0].split()[1:]
        shown = [float(value.replace("\N{MINUS SIGN}", "-")) / 100 for value in (difference, low, high)]
        assert shown == pytest.approx([row.difference, *row.interval], abs=0.00051)
        assert p == ("<0.001" if row.p_holm < 0.001 else f"{row.p_holm:.3f}")
        assert list(map(int, counts)) == [row.better, 48 - row.better - row.worse, row.worse]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_pairs_fit_a_narrow_terminal(sweep, width):
    text = render_pairs(sweep, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert re.search(r"^fedavg_finetune ", text, re.MULTILINE)


def test_unpaired_configurations_are_named(tmp_path):
    for number, (name, data) in enumerate([("fedavg", "digits"), ("fedper", "mnist")]):
        write_run(tmp_path / str(number), name, settings={"strategy": name, "data": data})
    text = " ".join(render_pairs(tmp_path).split())
    reason = "no run of the reference is on the same data, partition and fleet"
    assert text == f"not paired fedper data=mnist: {reason} (fedavg data=digits: data is mnist, not digits)"
    assert paired_text(compare([tmp_path / "0"])) is None


def test_pairs_of_an_error_have_its_unit(tmp_path):
    for name in ("local", "fedavg"):
        write_run(tmp_path / name, name, task="regression")
    assert "MSE, below 0 is better" in render_pairs(tmp_path)


def test_selected_configuration_is_named(tmp_path):
    for rate in ("0.01", "0.1"):
        path = write_run(tmp_path / rate, "fedavg", overrides=[f"train.learning_rate={rate}"])
        figures = {"devices": 16, "weighted_mean": float(rate)}
        RunFolder(path).write_summary(replace(RunFolder(path).summary(), metrics_validation={"accuracy": figures}))
    text = render(tmp_path)
    assert re.search(r"^  train\.learning_rate=0\.1 .*\n  chosen from 2 ", text, re.MULTILINE)
    assert text.count("chosen from") == 1
    assert "--best" in text


def test_columns_are_dropped_before_overrides_are_folded(tmp_path):
    for rate in ("0.01", "0.1"):
        path = write_run(tmp_path / rate, "fedavg", overrides=[f"train.learning_rate={rate}"])
        RunFolder(path).write_summary(replace(RunFolder(path).summary(), train_calls=400, infer_calls=300))
    assert re.search(r"^  train\.learning_rate=0\.01 ", render(tmp_path, width=80), re.MULTILINE)


@pytest.mark.parametrize("rendered", [render, render_pairs])
def test_value_of_a_long_override_is_never_folded(tmp_path, rendered):
    for value in ("0.03571", "0.0981"):
        write_run(tmp_path / value, "ditto", overrides=["train.epochs=2", f"strategy.regularization={value}"])
    write_run(tmp_path / "fedavg", "fedavg")
    for width in range(74, 94):
        assert re.search(r"^ +(strategy\.regularization=)?0\.03571\s", rendered(tmp_path, width=width), re.MULTILINE)


def test_wider_terminal_has_more_columns(tmp_path):
    for name in ("local", "fedavg"):
        path = write_run(tmp_path / name, name)
        calls = {"train_calls": 400, "infer_calls": 300, "state_bytes": 1000}
        RunFolder(path).write_summary(replace(RunFolder(path).summary(), **calls))
    headings = [set(render(tmp_path, width=width).splitlines()[2].split()) for width in (60, 80, 100, 140)]
    assert all(narrow <= wide for narrow, wide in itertools.pairwise(headings))
    assert "seconds" in headings[-1]
    assert "seconds" not in headings[0]


def test_two_seeds_have_no_interval_and_the_table_says_so(tmp_path):
    for seed in (0, 1):
        for name in ("local", "fedavg"):
            write_run(tmp_path / f"{name}{seed}", name, seed)
    text = render_pairs(tmp_path)
    assert "no CI or p with fewer than 3 seeds" in text
    assert "Student's t over 2 seeds" not in text
