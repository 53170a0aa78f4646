"""The comparison as a file for programs: `comparison.json`."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from odt_sim.metrics.fleet import HIGHER_IS_BETTER
from odt_sim.report.columns import Column
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.significance import CONFIDENCE, RESAMPLES


def comparison_document(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """Returns the content of `comparison.json`.

    Args:
        comparison: What `compare` returned.
        folder: Where the file will be; paths of runs are relative to it.

    Returns:
        | key | value |
        |---|---|
        | `metric`, `higher_is_better` | by what strategies are compared |
        | `target` | to which rounds are counted, or null |
        | `columns` | for each key of a row's `values`: `title`, `unit` and `higher_is_better` |
        | `interval` | how `paired.interval` was made: `confidence`, `resamples` |
        | `rows` | see below |
        | `failures` | `label`, `path` and `error` of each run that ended early |

        A row has `label`, `strategy`, `seeds`, `runs` (paths, a seed each), `candidates` (configurations of its strategy),
        `chosen` (whether it validates best of them), `values` (for each column `mean` and `std` over seeds, in the unit
        before scaling: a fraction where the unit is `percent`; or null), and `paired`: null for a reference itself, else
        the fields of `odt_sim.report.pairing.Paired`.
    """
    paired = {row.label: asdict(row) for row in comparison.paired}
    return {
        "metric": comparison.metric,
        "higher_is_better": HIGHER_IS_BETTER[comparison.metric],
        "target": comparison.target,
        "columns": {column.key: _column(column) for column in comparison.columns},
        "interval": {"confidence": CONFIDENCE, "resamples": RESAMPLES},
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
        "seeds": [run.complete["seed"] for run in row.runs],
        "runs": [_path(run.path, folder) for run in row.runs],
        "candidates": row.choice.candidates,
        "chosen": row.choice.label == row.label,
        "values": {key: None if spread is None else asdict(spread) for key, spread in row.values.items()},
    }


def _path(path: Path, folder: Path) -> str:
    return os.path.relpath(path.resolve(), folder.resolve())
