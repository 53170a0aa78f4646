"""The comparison for programs: flat records for CSV and pandas, and the content of `comparison.json`."""

import csv
import os
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from odt_sim.metrics.names import higher_is_better
from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.pairing import Paired
from odt_sim.report.significance import CONFIDENCE


def comparison_records(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a record for each configuration, all with the same columns.

    Returns:
        Each record has `label`, `strategy`, `seeds` (their number), `chosen`, and `pruned` (by a search's pruner). For
        each column of the report it has `<key>`, the mean over seeds, and with several seeds `<key>_std`. For hurt
        devices it has `<key>_low` and `<key>_high`, the ends of the interval. With a reference it has `paired_<field>`
        for each field of `odt_sim.report.pairing.Paired`, with `paired_low` and `paired_high` as the ends of the
        interval. Fractions are from 0 to 1. Unknown values are None.
    """
    paired = {row.label: row for row in comparison.paired}
    several = any(len(row.runs) > 1 for row in comparison.rows)
    return [
        {**_figures(comparison, row, several=several), **(_pair(paired.get(row.label)) if paired else {})}
        for row in comparison.rows
    ]


def comparison_csv(comparison: Comparison) -> str:
    """Return the records as a CSV table with a header; unknown values are empty."""
    records, text = comparison_records(comparison), StringIO()
    writer = csv.DictWriter(text, records[0] if records else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _figures(comparison: Comparison, row: Configuration, *, several: bool) -> dict[str, Any]:
    record = {"label": row.label, "strategy": row.strategy, "seeds": len(row.runs)}
    record |= {"chosen": row.chosen, "pruned": bool(row.pruned)}
    for key in (column.key for column in comparison.columns):
        spread = row.values[key]
        record[key] = spread and spread.mean
        if several:
            record[f"{key}_std"] = spread and spread.std
        if key in row.hurt:
            hurt = row.hurt[key]
            low, high = (hurt and hurt.interval) or (None, None)
            record |= {f"{key}_low": low, f"{key}_high": high}
    return record


def _pair(pair: Paired | None) -> dict[str, Any]:
    fields = asdict(pair or Paired("", None))
    low, high = fields.pop("interval") or (None, None)
    del fields["label"]
    return {f"paired_{name}": value if pair else None for name, value in {**fields, "low": low, "high": high}.items()}


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
        empty), `values`, `hurt` (the fields of `odt_sim.report.gains.Hurt` by column, or null), and `paired` (the fields
        of `odt_sim.report.pairing.Paired`; null for a reference). `values` has `mean` and `std` over seeds for each
        column, or null; if the unit is `percent` or `points`, they are fractions.
    """

    def relative(path: Path) -> str:
        return os.path.relpath(path.resolve(), folder.resolve())

    paired = {row.label: asdict(row) for row in comparison.paired}
    return {
        "metric": comparison.metric,
        "higher_is_better": higher_is_better(comparison.metric),
        "target": comparison.target,
        "columns": {
            column.key: {
                "title": column.title.replace("\n", " "),
                "unit": column.unit,
                "higher_is_better": column.higher_is_better,
            }
            for column in comparison.columns
        },
        "interval": {"confidence": CONFIDENCE, "method": "student_t"},
        "rows": [
            {
                "label": row.label,
                "strategy": row.strategy,
                "seeds": [run.complete.seed for run in row.runs],
                "runs": [relative(run.path) for run in row.runs],
                "candidates": row.selection.candidates,
                "chosen": row.selection.label == row.label,
                "improving": row.improving,
                "pruned_after": row.pruned,
                "hurt": {key: hurt and asdict(hurt) for key, hurt in row.hurt.items()},
                "values": {key: spread and asdict(spread) for key, spread in row.values.items()},
                "paired": paired.get(row.label),
            }
            for row in comparison.rows
        ],
        "failures": [{**asdict(failure), "path": relative(failure.path)} for failure in comparison.failures],
    }
