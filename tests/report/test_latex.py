import csv
import io
import shutil
import subprocess

import pytest
from written_runs import write_run

from odt_sim.report.comparison import compare
from odt_sim.report.records import comparison_csv, comparison_records
from odt_sim.report.sections import latex
from odt_sim.report.table import escaped

HOSTILE = r"train.note=a_b&c%d$e#f{g}~h^i\j"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 5 % $x$ #1", r"a\_b \& 5 \% \$x\$ \#1"),
        (r"\{~^}", r"\textbackslash{}\{\textasciitilde{}\textasciicircum{}\}"),
        ("−0.5 ± 1 – R²", r"$-$0.5 $\pm$ 1 -- R\textsuperscript{2}"),
        ("<0.001", r"\textless{}0.001"),
        ("Holm's p 'x'", r"Holm’s p \textquotesingle{}x\textquotesingle{}"),
    ],
)
def test_text_is_escaped(text, expected):
    assert escaped(text) == expected


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    for name in ("local", "fedavg", "fedper"):
        for seed in (0, 1, 2):
            overrides = [HOSTILE] if name == "fedper" else []
            write_run(root / f"{name}{seed}", name, seed, overrides=overrides)
    return compare([root])


def test_tables_are_those_of_the_page(comparison):
    text = latex(comparison)
    assert text.count(r"\begin{table}") == text.count(r"\toprule") == text.count(r"\bottomrule") == 6
    assert r"\label{tab:seen-devices}" in text
    fedavg = comparison.rows[0].values["weighted_mean"]
    assert f"{100 * fedavg.mean:.1f} \\\\ {{\\scriptsize $\\pm${100 * fedavg.std:.1f}}}" in text
    assert r"\textbf{" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_tables_compile(comparison, tmp_path):
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs}\begin{document}"
    (tmp_path / "tables.tex").write_text(f"{head}\n{latex(comparison)}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / "tables.pdf").stat().st_size > 10_000


def test_csv_has_a_row_per_configuration_with_all_digits(comparison):
    rows = list(csv.DictReader(io.StringIO(comparison_csv(comparison))))
    assert [row["label"] for row in rows] == [row.label for row in comparison.rows]
    for row, found in zip(comparison.rows, rows, strict=True):
        assert float(found["weighted_mean"]) == row.values["weighted_mean"].mean
        assert float(found["weighted_mean_std"]) == row.values["weighted_mean"].std
    reference, *others = rows
    assert reference["paired_difference"] == ""
    for pair, found in zip(comparison.paired, others, strict=True):
        assert (found["paired_reference"], float(found["paired_difference"])) == ("fedavg", pair.difference)
        assert (float(found["paired_low"]), float(found["paired_high"])) == pair.interval


def test_records_without_a_comparison_are_empty(tmp_path):
    (record,) = comparison_records(compare([write_run(tmp_path / "run")]))
    assert record["seeds"] == 1
    assert not [key for key in record if key.startswith("paired_") or key.endswith("_std")]
