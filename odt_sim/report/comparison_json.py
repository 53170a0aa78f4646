"""The comparison in machine-readable form: the content of `comparison.json`."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from odt_sim.metrics.names import higher_is_better
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.comparison_columns import Column
from odt_sim.report.significance import CONFIDENCE


def comparison_document(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """Return the content of `comparison.json`.

    Args:
        comparison: The comparison.
        folder: The file's folder; paths of runs are relative to it.

    Returns:
        | key | value |
        |---|---|
        | `metric`, `higher_is_better` | the metric by which strategies are compared |
        | `target` | the value to which rounds are counted, or null |
        | `columns` | `title`, `unit` and `higher_is_better` for each key of a row's `values` |
        | `interval` | the method behind `paired.interval` and `paired.p`: `confidence`, and `method`, Student's t |
        | `rows` | see below |
        | `failures` | `label`, `path` and `error` of each run that ended early |

        A row has `label`, `strategy`, `seeds`, `runs` (a path per seed), `candidates` (the number of configurations of
        its strategy on the same data), `chosen` (whether it validates best of these), `improving` (whether it still
        improved at its end, or null), `pruned_after` (the rounds after which a search's pruner ended its runs; usually
        empty), `values`, `hurt` (the fields of `odt_sim.report.hurt.Hurt` by column, or null), and `paired` (the fields
        of `odt_sim.report.pairing.Paired`; null for a reference). `values` has `mean` and `std` over seeds for each
        column, or null; if the unit is `percent` or `points`, they are fractions.
    """
    paired = {row.label: asdict(row) for row in comparison.paired}
    return {
        "metric": comparison.metric,
        "higher_is_better": higher_is_better(comparison.metric),
        "target": comparison.target,
        "columns": {column.key: _column(column) for column in comparison.columns},
        "interval": {"confidence": CONFIDENCE, "method": "student_t"},
        "rows": [{**_row(row, folder), "paired": paired.get(row.label)} for row in comparison.rows],
        "failures": [
            {"label": failure.label, "path": _path(failure.path, folder), "error": failure.error}
            for failure in comparison.failures
        ],
    }


def _column(column: Column) -> Mapping[str, Any]:
    return {"title": column.title.replace("\n", " "), "unit": column.unit, "higher_is_better": column.higher_is_better}


def _row(row: Configuration, folder: Path) -> dict[str, Any]:
    return {
        "label": row.label,
        "strategy": row.strategy,
        "seeds": [run.complete.seed for run in row.runs],
        "runs": [_path(run.path, folder) for run in row.runs],
        "candidates": row.selection.candidates,
        "chosen": row.selection.label == row.label,
        "improving": row.improving,
        "pruned_after": row.pruned,
        "hurt": {key: None if hurt is None else asdict(hurt) for key, hurt in row.hurt.items()},
        "values": {key: None if spread is None else asdict(spread) for key, spread in row.values.items()},
    }


def _path(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())
