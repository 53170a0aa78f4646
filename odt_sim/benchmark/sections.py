"""Tables and captions of a benchmark, for its page and for Markdown."""

from odt_sim._support.text import counted
from odt_sim.benchmark.ranks import Array
from odt_sim.benchmark.results import MEAN, Results, TaskResult
from odt_sim.metrics.names import higher_is_better
from odt_sim.metrics.units import duration, significant
from odt_sim.report import description
from odt_sim.report.formatting import UNKNOWN, heading, probability, score
from odt_sim.report.table import Cell, Row, Table

BETTER, WORSE = "▲", "▼"
RANKS = "Ranks"
SERVED = "Mean over users"
BEST = "Best strategies by task"
STEPS = "Training steps"
SETTINGS = "Winning settings"
QUESTIONS = {
    MEAN: "mean",
    "bottom_decile": "worst decile",
    "unseen": "unseen users",
    "unseen_adapted": "unseen, adapted",
}
COST_HEADINGS = {"megabytes": "bytes", "train_calls": "training steps"}
_COST_SECTIONS = {
    "megabytes": ("Traffic, MB", "Total over all rounds and devices, mean over seeds."),
    "train_calls": (STEPS, "Total over all rounds and devices and one deployment to every device, mean over seeds."),
}
_TITLES = {
    "bottom_decile": "Worst decile of users",
    "unseen": "Unseen users",
    "unseen_adapted": "Unseen users after adaptation",
}


def headline(results: Results) -> str:
    """Return the title: the numbers of strategies and tasks."""
    return f"{counted(len(results.strategies), 'strategy', 'strategies')} on {counted(len(results.tasks), 'task')}"


def finding(results: Results) -> str:
    """Return a text on which strategies rank best, and whether the difference is significant."""
    if not results.ranked_strategies:
        return "No strategy runs on all tasks."
    average = results.ranks().mean(axis=0)
    first = results.ranked_strategies[0]
    if len(results.strategies) == 1:
        return "There is nothing to compare."
    if len(average) == 1:
        return f"{first} is the only strategy that runs on all tasks."
    level = [name for name, rank in zip(results.ranked_strategies, average, strict=True) if rank == average[0]]
    have = f"{first} has" if len(level) == 1 else f"{', '.join(level[:-1])} and {level[-1]} share"
    text = f"{have} the best average rank, {average[0]:.1f} of {len(average)}."
    test, difference = results.friedman, results.critical_difference
    if test is None or difference is None:
        return f"{text} Ranks on a single task cannot be tested."
    near, others = sum(rank - average[0] <= difference for rank in average[1:]), len(average) - 1
    closer = f"{near} of the {others} other strategies {'is' if near == 1 else 'are'} indistinguishable from the best."
    if others == 1:
        closer = f"the other strategy is {'in' if near else ''}distinguishable from the best."
    return (
        f"{text} Friedman test: p {probability(test.p)}. On {len(results.tasks)} tasks, two strategies are "
        f"distinguishable if their average ranks differ by more than {difference:.1f} (Nemenyi): {closer}"
    )


def facts(results: Results) -> dict[str, str]:
    """Return facts by name, such as versions, machine, seeds and time."""
    comparison = next(task.comparison for task in results.tasks if task.comparison)
    known = description.settings(comparison)
    outcomes = [outcome for task in results.tasks for outcome in task.outcomes.values()]
    budgets = sorted({str(outcome.budget) for outcome in outcomes})
    return {
        "strategies": str(len(results.strategies)),
        "tasks": ", ".join(task.name for task in results.tasks),
        "trials per strategy": ", ".join(budgets),
        "seeds": known["seeds"],
        "time": f"{duration(results.seconds / results.jobs)} in {counted(results.jobs, 'process', 'processes')}",
        **{name: known[name] for name in ("versions", "machine") if name in known},
    }


def sections(results: Results) -> list[Table]:
    """Return all sections."""
    tables = [
        _ranks(results),
        _best(results),
        _figures(results, MEAN, SERVED),
        *(_figures(results, key, title) for key, title in _TITLES.items()),
        *(_costs(results, key, title, caption) for key, (title, caption) in _COST_SECTIONS.items()),
        _tasks(results),
        Table(
            SETTINGS,
            "Settings of the trial with the best validation mean, and the number of failed trials.",
            ["strategy", *(task.name for task in results.tasks)],
            [Row(name, [_settings_cell(task, name) for task in results.tasks]) for name in _ordered(results)],
        ),
        _left_out(results),
    ]
    return [section for section in tables if section.rows or section.notes]


def _ranks(results: Results) -> Table:
    ranked, seeds = results.ranks(), results.seed_ranks()
    by_question = {key: results.ranks(key) for key in QUESTIONS if key != MEAN}
    shown = [key for key, of_tasks in by_question.items() if len(of_tasks)]
    headings = [
        "strategy",
        "average\nrank",
        "range over\nsingle seeds",
        f"better than\n{results.reference}",
        f"worse than\n{results.reference}",
        *(f"rank,\n{QUESTIONS[key]}" for key in shown),
        *(f"{title} /\n{results.reference}" for title in COST_HEADINGS.values()),
    ]
    rows = []
    for place, name in enumerate(_ordered(results)):
        ranks, notes = [Cell(UNKNOWN)] * (2 + len(shown)), []
        if place < len(results.ranked_strategies):
            span = f"{seeds[:, place].min():.1f} to {seeds[:, place].max():.1f}" if len(seeds) > 1 else UNKNOWN
            average, *others = (
                _rank_cell(of_tasks, place) for of_tasks in (ranked, *(by_question[key] for key in shown))
            )
            ranks = [average, Cell(span), *others]
        else:
            notes = [f"{sum(name in task.rows for task in results.tasks)} of {counted(len(results.tasks), 'task')}"]
        against = [task.against(name) for task in results.tasks]
        counts = ["", ""] if name == results.reference else [str(against.count(1)), str(against.count(-1))]
        costs = [results.relative(name, key) for key in COST_HEADINGS]
        ratios = [Cell(UNKNOWN if cost is None else f"{cost:.2f}") for cost in costs]
        rows.append(Row(name, [*ranks[:2], *map(Cell, counts), *ranks[2:], *ratios], notes))
    test = results.friedman
    tested = f" Friedman's chi-square {test.chi_square:.1f}, F {test.f:.2f}, p {probability(test.p)}." if test else ""
    caption = (
        "Strategies are ranked on each task by their mean over seen users and seeds (1 is best); ranks are averaged over "
        f"tasks. Each task is one observation, since seeds are not new tasks.{tested} Range over single seeds: lowest and "
        f"highest average rank with only one seed. Better and worse than {results.reference}: number of tasks with a "
        "significant paired difference (Student's t over people or seeds; p below 0.05, Holm-adjusted over all strategies of "
        f"the task). Costs: ratio to {results.reference}, geometric mean over tasks; steps include one deployment. "
        "Strategies that cannot run on some task are listed last, without a rank."
    )
    return Table(RANKS, caption, headings, rows)


def _rank_cell(ranks: Array, place: int) -> Cell:
    """Return the average rank of a strategy over tasks, from ranks `[tasks, strategies]`."""
    average = ranks.mean(axis=0)
    return Cell(f"{average[place]:.1f}", best=bool(average[place] == average.min()))


def _best(results: Results) -> Table:
    headings = ["task", *QUESTIONS.values(), *(f"fewest {title}\namong the best" for title in COST_HEADINGS.values())]
    rows = []
    for task in results.tasks:
        best = {key: task.best(key) for key in QUESTIONS}
        cells = [Cell(n, [_score(task.value(n, key), task)]) if n else Cell(UNKNOWN) for key, n in best.items()]
        level = task.level_with(first) if (first := best[MEAN]) else []
        for key in COST_HEADINGS:
            name = task.cheapest(key, level)
            cost = significant((task.cost(name, key) if name else None) or 0.0)
            cells.append(Cell(name, [f"{_score(task.value(name, MEAN), task)}, {cost}"]) if name else Cell(UNKNOWN))
        rows.append(Row(task.name, cells))
    caption = (
        "The best strategy by each metric, with its value. Among the best: of the strategies that are not significantly "
        "worse than the best mean (paired test), the one that sends and receives the fewest bytes (MB), and the one with the "
        "fewest training steps, including one deployment."
    )
    return Table(BEST, caption, headings, rows)


def _figures(results: Results, key: str, title: str) -> Table:
    tasks = [task for task in results.tasks if any(task.value(each, key) is not None for each in results.strategies)]
    best = {task.name: task.best(key) for task in tasks}
    rows = [Row(name, [_figure_cell(task, name, key, best[task.name]) for task in tasks]) for name in _ordered(results)]
    caption = {
        MEAN: "Test metric of the seen users, each counted once, mean over seeds, with its 95 % confidence interval (over "
        "people, around the mean of their means, if the same people return with every seed; otherwise over seeds). "
        f"{BETTER} and {WORSE}: significantly better or worse than {results.reference} (paired test, Holm-adjusted).",
        "bottom_decile": "The test metric that the worst-served tenth of the seen users does not reach; mean over seeds.",
        "unseen": "Users who took no part in training, with the model deployed to them; mean over seeds.",
        "unseen_adapted": "The same users after a few local steps on their own training examples; mean over seeds.",
    }[key]
    return Table(title, caption, ["strategy", *(_heading(task) for task in tasks)], rows if tasks else [])


def _costs(results: Results, key: str, title: str, caption: str) -> Table:
    rows = []
    for name in _ordered(results):
        costs = [task.cost(name, key) for task in results.tasks]
        rows.append(Row(name, [Cell(UNKNOWN if cost is None else significant(cost)) for cost in costs]))
    return Table(title, caption, ["strategy", *(task.name for task in results.tasks)], rows)


def _figure_cell(task: TaskResult, name: str, key: str, best: str | None) -> Cell:
    value = task.value(name, key)
    if value is None:
        return Cell("failed" if task.outcomes[name].status == "failed" else UNKNOWN)
    mark = {1: BETTER, 0: "", -1: WORSE}[task.against(name)] if key == MEAN else ""
    tested = task.interval(name) if key == MEAN else None
    below = [f"{_score(tested.interval[0], task)} to {_score(tested.interval[1], task)}"] if tested else []
    return Cell(f"{_score(value, task)}{mark}", below, name == best)


def _ordered(results: Results) -> list[str]:
    """Return the ranked strategies, followed by the others that ran on some task."""
    others = [each for each in results.strategies if each not in results.ranked_strategies]
    return [*results.ranked_strategies, *(each for each in others if any(each in task.rows for task in results.tasks))]


def _heading(task: TaskResult) -> str:
    lower = "" if higher_is_better(task.metric) else "\n(lower is better)"
    return f"{task.name}\n{heading(task.metric)}{lower}"


def _tasks(results: Results) -> Table:
    names = ["data", "partition", "model", "devices", "unseen devices", "devices per round", "rounds", "local epochs"]
    known = {task.name: description.settings(task.comparison) for task in results.tasks if task.comparison}
    rows = [Row(name, [Cell(settings.get(each, UNKNOWN)) for each in names]) for name, settings in known.items()]
    notes = []
    for task in results.tasks:
        if count := sum(bool(row.improving) for row in task.rows.values()):
            notes.append(f"{task.name}: {count} of {len(task.rows)} strategies were still improving at the end.")
    return Table("Tasks", "", ["task", *names], rows, notes)


def _settings_cell(task: TaskResult, name: str) -> Cell:
    won = task.outcomes[name].winner
    if won is None:
        return Cell(UNKNOWN)
    first, *others = [each.removeprefix("train.").removeprefix("strategy.") for each in won.settings]
    failed = [f"{won.failed} of {won.trials} trials failed"] if won.failed else []
    return Cell(first, [*others, *failed])


def _left_out(results: Results) -> Table:
    found = [(task.name, name, outcome) for task in results.tasks for name, outcome in task.outcomes.items()]
    notes = [f"{name} on {task}: {outcome.reason}" for task, name, outcome in found if outcome.status == "refused"]
    failed = [
        f"{name} on {task} failed: {outcome.reason}" for task, name, outcome in found if outcome.status == "failed"
    ]
    caption = (
        "A strategy that cannot run on a task has no result there and is not ranked, since an average over fewer tasks would "
        "not be comparable. A strategy that ran and failed is ranked last on that task."
    )
    return Table("Not applicable or failed", caption, notes=[*notes, *failed])


def _score(value: float | None, task: TaskResult) -> str:
    return score(value, task.metric)
