"""The comparison as flat records: the rows of a CSV table and of the frame of `odt_sim.Results.comparison`."""

import csv
from collections.abc import Mapping
from dataclasses import asdict
from io import StringIO
from typing import Any

from odt_sim.report.comparison import Comparison, Configuration
from odt_sim.report.pairing import Paired


def comparison_records(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a record for each configuration, all with the same columns.

    Returns:
        Each record has `label`, `strategy`, `seeds` (their number), `chosen`, and `pruned` (by a search's pruner). For
        each column of the report it has `<key>`, the mean over seeds, and with several seeds `<key>_std`. For hurt
        devices it has `<key>_low` and `<key>_high`, the ends of the interval, and `<key>_by_one`, the number of hurt
        devices that differ by one example only. With a reference it has `paired_<field>` for each field of
        `odt_sim.report.pairing.Paired`, with `paired_low` and `paired_high` as the ends of the interval. Fractions are
        from 0 to 1. Unknown values are None.
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
            record |= {f"{key}_low": low, f"{key}_high": high, f"{key}_by_one": hurt and hurt.by_one}
    return record


def _pair(pair: Paired | None) -> Mapping[str, Any]:
    fields = asdict(pair or Paired("", None))
    low, high = fields.pop("interval") or (None, None)
    fields.pop("label")
    known = {**fields, "low": low, "high": high}
    return {f"paired_{name}": value if pair else None for name, value in known.items()}
