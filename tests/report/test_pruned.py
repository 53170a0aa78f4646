"""Configurations that a search's pruner stopped: the report shows them, but does not compare them as equals."""

from dataclasses import replace

import pytest
from written_runs import complete_run, round_record, write_run

from odt_sim.report.columns import COST, COSTS
from odt_sim.report.comparison import Configuration, compare
from odt_sim.report.equal_budgets import equal_budgets
from odt_sim.report.notes import pruned
from odt_sim.report.pareto_plot import fronts, points
from odt_sim.report.pictures import pictures
from odt_sim.report.records import comparison_records
from odt_sim.report.sections import budgets_table, figures_table
from odt_sim.report.selection import Selection, select
from odt_sim.report.terminal import comparison_text

WHOLE, SHORT, SHORTER = (f"fedavg train.learning_rate={rate}" for rate in ("0.1", "0.01", "0.001"))


def write_trials(root, pruned=True):
    """Write two trials of 10 rounds, and two that ended after 5 rounds and 1."""
    for rate, rounds in (("0.1", 10), ("0.01", 5), ("0.001", 1)):
        ended = {"stopped": f"round {rounds}", "pruned": pruned} if rounds < 10 else {}
        write_run(root / rate, overrides=[f"train.learning_rate={rate}"], rounds=rounds, references=False, **ended)
    write_run(root / "other", "fedper", references=False)
    return root


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    return compare([write_trials(tmp_path_factory.mktemp("search"))])


def test_sentence_has_the_pruned_configurations_and_their_rounds(search):
    assert {row.label: row.pruned for row in search.rows} == {WHOLE: [], SHORT: [5], SHORTER: [1], "fedper": []}
    assert f"Pruned by the search: {SHORTER} (after 1 round), {SHORT} (after 5 rounds); excluded" in pruned(search)
    assert [each["pruned"] for each in comparison_records(search)] == [False, True, True, False]


def test_pruned_configuration_is_never_the_best_of_a_column(search):
    rows = {tuple(row.notes): row.cells for row in figures_table(search, COST).rows}
    short = rows["train.learning_rate=0.001", "pruned after 1 round"]
    assert not any(cell.best for cell in short)


def test_pruned_configurations_are_not_tested_against_the_reference(search):
    assert [(pair.label, pair.reference) for pair in search.paired] == [("fedper", WHOLE)]
    (pair,) = search.paired
    assert pair.p_holm == pair.p  # they do not count as comparisons


def test_terminal_names_pruned_configurations(search):
    table, *_ = comparison_text(search).renderables
    marks = [name.plain.split("\n  ")[2:] for name in table.columns[0].cells]
    assert marks == [[], ["pruned after 1 round"], ["pruned after 5 rounds"], []]
    assert "Pruned by the search" in table.caption.plain


@pytest.mark.slow
def test_pruned_configuration_takes_no_part_in_budgets_and_fronts(search):
    whole = [WHOLE, "fedper"]
    assert [[*at.values] for at in equal_budgets(search)] == [whole, whole]
    assert equal_budgets(search)[0].title == "at 10\nrounds"
    assert len(budgets_table(search).rows) == 2
    megabytes = points(search, COSTS[0])
    assert len(megabytes) == 4
    assert [[point.row.label for point in front] for front in fronts(megabytes, "accuracy")] == [["fedper"]]
    (caption,) = (each.caption for each in pictures(search) if each.name == "pareto_megabytes")
    assert "Pruned configurations are excluded." in caption


@pytest.mark.parametrize(("pruned", "improving"), [(None, True), (True, None)])
def test_pruned_configuration_does_not_count_as_improving(pruned, improving):
    records = tuple(round_record(number, validation_accuracy=number / 10) for number in range(1, 9))
    run = replace(complete_run("a", {"pruned": pruned}), rounds=records)
    assert Configuration("a", (run,), {}, Selection("a", 1)).improving is improving


def test_pruned_configuration_is_chosen_only_where_all_were():
    def run(name, accuracy, *, ended):
        figures = {"accuracy": {"weighted_mean": accuracy, "devices": 4}}
        return [complete_run(name, {"metrics_validation": figures, "pruned": ended or None})]

    better, worse = run("better", 0.9, ended=True), run("worse", 0.4, ended=True)
    assert select({"better": better, "whole": run("whole", 0.5, ended=False)})["whole"].label == "whole"
    assert select({"worse": worse, "better": better})["worse"].label == "better"


def test_run_that_ends_for_another_reason_is_compared_as_before(tmp_path):
    found = compare([write_trials(tmp_path, pruned=None)])
    assert pruned(found) is None
    assert found.unpruned == found.rows
    assert equal_budgets(found)[0].title == "at 1\nrounds"
