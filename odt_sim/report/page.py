"""The report as one self-contained HTML page, with its plots also as PNG files."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from odt_sim._support.files import rendered, write_file
from odt_sim.metrics.names import title_of
from odt_sim.persistence.run import Run
from odt_sim.persistence.run_folder import document
from odt_sim.report import description, paired_description
from odt_sim.report.comparison import Comparison
from odt_sim.report.comparison_columns import COST, NEW_USERS, OTHER, OVER_TIME, PHONES, SERVED
from odt_sim.report.comparison_json import comparison_document
from odt_sim.report.formatting import score
from odt_sim.report.overrides import short_paths
from odt_sim.report.page_tables import (
    Table,
    budgets_table,
    classes_table,
    comparison_table,
    devices_table,
    paired_table,
)
from odt_sim.report.pictures import Picture, pictures
from odt_sim.report.provenance import differences

_CLASSES = (
    "Seen devices by class, over the whole run. Metric: mean over the evaluated devices. Energy, traffic and busy time: mean "
    "per device, where busy time runs from download to upload. Never reported: share of the devices without a report."
)


_BUDGETS = (
    "Mean test {} of the seen devices, weighted by test examples, after the last evaluated round within a budget of rounds, "
    "training steps or MB. Each budget is the lowest total of any configuration; configurations that spend nothing are "
    "ignored and fit any budget. No round is chosen here, so values differ from those of the reported round."
)
_DIFFERING = (
    "Differences between the runs in data, model, versions and machine, in addition to strategies and settings. Only devices "
    "with the same examples are paired."
)


class Section(NamedTuple):
    """A part of the page: a table with its caption above and notes below."""

    title: str
    caption: str
    table: Table | None
    notes: Sequence[str] = ()


def page_path(folders: Sequence[Path]) -> Path:
    """Return the default path of the page: in the folder, or in the current folder if there are several."""
    return (folders[0] if len(folders) == 1 else Path()) / "report.html"


def write_report(comparison: Comparison, output: Path, further: Sequence[Section] = ()) -> None:
    """Write the page, and in the same folder `comparison.json` and `figures/*.png`.

    Args:
        comparison: The comparison.
        output: The page's path.
        further: Sections to add after those of the comparison.

    Raises:
        FileError: A file cannot be written.
    """
    drawn = pictures(comparison)
    for picture in drawn:
        write_file(output.parent / "figures" / f"{picture.name}.png", picture.light)
    write_file(output.parent / "comparison.json", document(comparison_document(comparison, output.parent)))
    write_file(output, page_html(comparison, drawn, further).encode())


def page_html(comparison: Comparison, drawn: Sequence[Picture], further: Sequence[Section] = ()) -> str:
    """Return the page, which loads no other file."""
    runs = comparison.runs
    commanded = any(run.overrides for run in runs)
    return rendered(
        "page.html",
        "odt_sim.report",
        title=description.title(comparison),
        result=description.result(comparison),
        settings=description.settings(comparison),
        sections=[*sections(comparison), *further],
        failures=description.failures(comparison),
        pictures=drawn,
        devices={row.label: devices_table(row) for row in comparison.rows},
        commands=[_command(run) for run in runs] if commanded else [],
        folders=_listed(short_paths([run.path for run in runs])) if runs else "",
    )


def sections(comparison: Comparison) -> list[Section]:
    """Return the tables of the page with captions and notes; empty without a complete run."""
    if not comparison.rows:
        return []
    described = (
        description.other_seeds,
        description.never_trained,
        description.improving,
        description.pruned,
        description.excluded,
        description.hostile,
        description.not_evaluated,
        description.undefined,
        description.privacy,
    )
    notes = [note for describe in described if (note := describe(comparison))]
    others = [note] if (note := description.undefined_others(comparison)) else []
    found = [
        Section(SERVED, _served_caption(comparison), comparison_table(comparison, SERVED), notes),
        *_paired_section(comparison),
        *_differing_section(comparison),
        Section(NEW_USERS, _new_users_caption(comparison), comparison_table(comparison, NEW_USERS)),
        Section(OVER_TIME, _over_time_caption(comparison), comparison_table(comparison, OVER_TIME)),
        Section(COST, _cost_caption(comparison), comparison_table(comparison, COST)),
        Section("At equal budgets", _budgets_caption(comparison), budgets_table(comparison)),
        Section(PHONES, _phones_caption(comparison), comparison_table(comparison, PHONES)),
        Section("Device classes", _CLASSES, classes_table(comparison)),
        Section(OTHER, _other_caption(comparison), comparison_table(comparison, OTHER), others),
    ]
    return [section for section in found if section.table or section.notes]


def _paired_section(comparison: Comparison) -> list[Section]:
    refused = [f"Not paired: {row.label}, {row.refused}." for row in comparison.paired if row.refused]
    if not comparison.paired:
        return []
    title = paired_description.against(comparison)
    if table := paired_table(comparison):
        method = paired_description.pairs_method(comparison)
        return [Section(title, paired_description.pairs_result(comparison), table, [method, *refused])]
    return [Section(title, "No configuration could be paired.", None, refused)]


def _differing_section(comparison: Comparison) -> list[Section]:
    found = [difference.text for difference in differences(comparison)]
    return [Section("Differences between the runs", _DIFFERING, None, found)] if found else []


def _served_caption(comparison: Comparison) -> str:
    seeds = max(len(row.runs) for row in comparison.rows)
    sentences = [
        f"Test {title_of(comparison.metric)} of the devices that take part in training. The best value in each "
        f"column is marked{description.on_each_data(comparison)}. Hurt: share of devices that the local-only or the global "
        "model would serve better, with its 95 % confidence interval (Wilson over devices, Student's t over seeds that draw "
        "different devices) and the number of hurt devices that lose at most one test example; – if unknown, or if the "
        "strategy is that model itself."
    ]
    if any(column.key == "attack_success" for column in comparison.columns):
        sentences.append(
            "Attack success: share of test examples with the attacker's trigger that the device's model, or the global "
            "model, classifies as the attacker wants."
        )
    if any(column.key == "others" for column in comparison.columns):
        sentences.append("Others' data: each device's model on test examples of other devices.")
    if seeds > 1:
        sentences.append(f"± is the sample standard deviation over up to {seeds} seeds.")
    if any(row.chosen for row in comparison.rows):
        sentences.append(
            "The chosen configuration of a strategy has the best validation mean over its seeds; test metrics are not used."
        )
    return " ".join(sentences)


def _new_users_caption(comparison: Comparison) -> str:
    steps = description.adaptation_steps(comparison) or "some"
    known = any(column.key == "unseen_adapted" for column in comparison.columns)
    adapted = f" Adapted: after {steps} more local steps on the device's own training examples." if known else ""
    return (
        f"Test {title_of(comparison.metric)} of the devices that take no part in training, with the model "
        f"deployed to them. Every device counts once.{adapted}"
    )


def _over_time_caption(comparison: Comparison) -> str:
    return (
        f"Test {title_of(comparison.metric)} of the seen devices at the end of the last period, on its examples (last "
        "period) and on average over all periods. When learned: mean over periods, each measured at its own end. "
        "Forgetting: decline on the examples of earlier periods from their best evaluation to the last one."
    )


def _phones_caption(comparison: Comparison) -> str:
    return (
        "On the simulated clock, over all rounds. J per device and round: mean energy per selection of a device, including "
        "lost work. Peak memory: interpreter and data of the device that needs most. Gini of reports: 0 if all seen devices "
        "reported equally often, near 1 if few did. Never reported: share of seen devices without a report. Too little "
        "memory: share of seen devices that cannot hold model and data. Rarely available: test "
        f"{title_of(comparison.metric)} of the least available quarter of the devices; other devices: of the rest."
        f"{description.unseen_train(comparison, 'joules')}"
    )


def _budgets_caption(comparison: Comparison) -> str:
    return _BUDGETS.format(title_of(comparison.metric)) + description.unseen_train(comparison)


def _cost_caption(comparison: Comparison) -> str:
    target, clock = "", any(run.complete.deploy_joules is not None for run in comparison.runs)
    energy = ", with its energy, which no other table includes" if clock else ""
    if comparison.target is not None:
        target = (
            " Rounds to target: first evaluated round with a weighted mean of "
            f"{score(comparison.target, comparison.metric)} or better; – unless every seed reaches it."
        )
    return (
        "Totals over all rounds: traffic, and the training steps and inference batches of the cohorts. Deploy: steps and "
        f"batches of one deployment to all devices{energy}. State: size of what a device stores between rounds, mean over "
        f"devices. Seconds: wall-clock time. {description.reported(comparison)}{target}"
        f"{description.unseen_train(comparison)}"
    )


def _other_caption(comparison: Comparison) -> str:
    means = (
        "Means over the seen devices, weighted by examples: the other metrics on test examples, and "
        f"{title_of(comparison.metric)} on training and validation examples."
    )
    return f"{means} {description.optimism(comparison) or ''}".rstrip()


def _command(run: Run) -> str:
    """Return the command of a run; for a resumed run, with its current number of rounds."""
    rounds = (run.settings or {}).get("run.rounds")
    overrides = run.overrides
    if rounds is not None and rounds != str(run.config.get("run", {}).get("rounds")):
        overrides = (*(given for given in overrides if not given.startswith("run.rounds=")), f"run.rounds={rounds}")
    return f"odt-sim run {shlex.join([*run.config_folders, *overrides])}".rstrip()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}"
