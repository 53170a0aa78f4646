"""The summary of a run as one JSON object: the content of `summary.json`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from odt_sim._support.text import counted
from odt_sim.metrics.fleet import Row, fleet_figures, fraction_hurt, gains, measured_as, split_seen
from odt_sim.metrics.rounds import continual_figures, rounds_to_target
from odt_sim.persistence.records import Record

Metrics = Mapping[str, Mapping[str, Any] | None]
"""For each metric of the task, the fields of `FleetFigures`; None where no device has a finite value."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Summary(Record):
    """A complete run: the content of `summary.json`."""

    OPTIONAL = (
        *(
            "over_time",
            "stopped",
            "pruned",
            "simulated_seconds",
            "joules",
            "bytes_wifi",
            "bytes_cellular",
            "fleet_totals",
        ),
        "deploy_joules",
        *("attack_success", "global_attack_success"),
        *("environment", "model_digest", "split_digest", "own_metrics"),
    )

    strategy: Annotated[str, "name of the strategy"]
    seed: Annotated[int, "seed of the run"]
    task: Annotated[
        str,
        "`classification`, `regression`, `segmentation`, `multi_label`, `ranking`, `transcription`, `other`; several by `+`",
    ]
    rounds: Annotated[int, "rounds that were run"]
    reported_round: Annotated[
        int | None, "round with the best validation mean, whose models all device metrics use"
    ] = None
    devices: Annotated[int, "devices of the fleet"]
    cohort: Annotated[int | None, "devices in a round; null for all seen devices"]
    unseen: Annotated[int, "devices that take no part in training"]
    evaluated: Annotated[int | None, "devices that were evaluated; all device metrics are over these"] = None
    train_examples: Annotated[int, "training examples of the evaluated devices"]
    examples: Annotated[int, "test examples of the evaluated devices"]
    metrics: Annotated[Metrics, "distribution of `m` over the seen devices"]
    metrics_train: Annotated[Metrics | None, "distribution of `train_m`, weighted by training examples"] = None
    metrics_validation: Annotated[Metrics | None, "distribution of `validation_m`, weighted by validation examples"] = (
        None
    )
    metrics_others: Annotated[
        Metrics | None, "distribution of `others_m`, which shows what a personal model has forgotten"
    ] = None
    metrics_unseen: Annotated[Metrics, "distribution of `m` over the unseen devices"]
    metrics_unseen_adapted: Annotated[Metrics | None, "distribution of `adapted_m` over the unseen devices"] = None
    fraction_hurt_global: Annotated[float | None, "fraction of the seen devices for which the global model is better"]
    fraction_hurt_local: Annotated[float | None, "fraction of the seen devices for which training alone is better"]
    attack_success: Annotated[
        float | None,
        "mean over the honest seen devices of the share of triggered test examples that the deployed model answers as the "
        "attacker wants; absent without such an attack",
    ] = None
    global_attack_success: Annotated[float | None, "the same of the global model, where the whole model travels"] = None
    target: Annotated[float | None, "value of the first metric to reach (`run.target`)"] = None
    rounds_to_target: Annotated[int | None, "first evaluated round with a weighted mean at the target or better"] = None
    excluded: Annotated[int, "excluded updates, over all rounds"]
    excluded_reasons: Annotated[Sequence[tuple[str, int]], "reasons with their counts, the most frequent first"] = ()
    quarantined: Annotated[Sequence[int], "ids of the quarantined devices"] = ()
    bytes_down: Annotated[int, "bytes that devices received, over all rounds"]
    bytes_up: Annotated[int, "bytes that devices sent, over all rounds"]
    train_calls: Annotated[int | None, "training steps of the cohorts, over all rounds"] = None
    infer_calls: Annotated[int | None, "batches of inference of the cohorts, over all rounds"] = None
    deploy_train_calls: Annotated[int | None, "training steps of one deployment to the evaluated devices"] = None
    deploy_infer_calls: Annotated[int | None, "batches of inference of that deployment, without the evaluation"] = None
    state_bytes: Annotated[float | None, "bytes that a device keeps from round to round, mean over devices"] = None
    seconds: Annotated[float, "wall-clock time of all rounds, without the evaluation at the end"]
    settings: Annotated[
        Mapping[str, str] | None, "all settings that determine the result, except the seed, by dotted name"
    ] = None
    over_time: Annotated[
        Mapping[str, float] | None,
        "`now`, `average`, `plasticity` and `forgetting` of the first metric; absent without arrival",
    ] = None
    privacy: Annotated[Mapping[str, Any] | None, "epsilon, delta and neighbouring fleets; null without a guarantee"] = (
        None
    )
    stopped: Annotated[str | None, "why the run ended early; absent if it ran all rounds"] = None
    pruned: Annotated[bool | None, "whether the pruner of a search ended the run; absent if it did not"] = None
    simulated_seconds: Annotated[float | None, "simulated time of the last round's end; absent without a clock"] = None
    joules: Annotated[float | None, "energy of all selected devices, over all rounds"] = None
    deploy_joules: Annotated[float | None, "energy to compute one deployment to the evaluated devices"] = None
    bytes_wifi: Annotated[int | None, "bytes received and sent on Wi-Fi, over all rounds"] = None
    bytes_cellular: Annotated[int | None, "bytes received and sent on the cellular network, over all rounds"] = None
    fleet_totals: Annotated[
        Mapping[str, Any] | None,
        "of the seen devices, with a clock: `participation_gini` of reports, `never_reached`, `too_small` for the model, "
        "`peak_memory_bytes`, and in `classes` the totals of each class",
    ] = None
    environment: Annotated[
        Mapping[str, str] | None,
        "versions, platform and processor of the process that completed the run, `code` (a digest of odt_sim's own), and "
        "what `backend=auto` chose",
    ] = None
    model_digest: Annotated[
        str | None, "equal for all exports of a model with the same initial weights; `settings` has the file's own"
    ] = None
    split_digest: Annotated[str | None, "equal for equal training, validation and test examples of every device"] = None
    own_metrics: Annotated[
        Mapping[str, bool] | None, "for each metric of the user whether a larger value is better; absent without any"
    ] = None

    def __repr__(self) -> str:
        """Return one line, with the weighted mean of the first metric."""
        metric, figures = next(iter(self.metrics.items()), ("", None))
        result = f", {metric} {figures['weighted_mean']:.4g}" if figures else ""
        ran = f"{counted(self.rounds, 'round')}, {counted(self.devices, 'device')}"
        return f"Summary({self.strategy}, seed {self.seed}: {ran}{result})"


def summarize(
    rounds: Sequence[Row],
    devices: Sequence[Row],
    *,
    metrics: Sequence[str],
    fleet: tuple[int, int] | None = None,
    reported_round: int | None = None,
    target: float | None = None,
    **recorded: Any,
) -> Summary:
    """Return the summary of a complete run.

    Args:
        rounds: The lines of `rounds.jsonl`.
        devices: The lines of `devices.jsonl`.
        metrics: The metrics of the task; the first is used for comparisons.
        fleet: The numbers of all devices and of unseen devices if only some were evaluated; None if `devices` are all.
        reported_round: The round after which the devices were evaluated; None for the last one.
        target: A value of the task's first metric to reach, or None.
        **recorded: The fields of `Summary` that the records do not provide, such as `strategy`, `seed`, `task` and
            `cohort`.
    """
    seen, unseen = split_seen(devices)
    return Summary(
        rounds=len(rounds),
        reported_round=len(rounds) if reported_round is None else reported_round,
        devices=len(devices) if fleet is None else fleet[0],
        unseen=len(unseen) if fleet is None else fleet[1],
        evaluated=len(devices),
        train_examples=_total(devices, "train_examples"),
        examples=_total(devices, "examples"),
        metrics=_figures(seen, metrics),
        metrics_train=_figures(seen, metrics, "train", "train_examples"),
        metrics_validation=_figures(seen, metrics, "validation", "validation_examples"),
        metrics_others=_figures(seen, metrics, "others"),
        metrics_unseen=_figures(unseen, metrics),
        metrics_unseen_adapted=_figures(unseen, metrics, "adapted"),
        fraction_hurt_global=_fraction_hurt(seen, metrics[0], "global"),
        fraction_hurt_local=_fraction_hurt(seen, metrics[0], "local"),
        attack_success=_known_total(seen, "attack_success", mean=True),
        global_attack_success=_known_total(seen, "global_attack_success", mean=True),
        target=target,
        rounds_to_target=None if target is None else rounds_to_target(rounds, metrics[0], target),
        excluded=_total(rounds, "excluded"),
        excluded_reasons=Counter(
            reason for row in rounds for reason in row.get("excluded_reasons", {}).values()
        ).most_common(),
        quarantined=[device for row in rounds for device in row.get("newly_quarantined", ())],
        bytes_down=_total(rounds, "bytes_down"),
        bytes_up=_total(rounds, "bytes_up"),
        train_calls=_known_total(rounds, "train_calls"),
        infer_calls=_known_total(rounds, "infer_calls"),
        deploy_train_calls=_known_total(devices, "deploy_train_calls"),
        deploy_infer_calls=_known_total(devices, "deploy_infer_calls"),
        state_bytes=_known_total(devices, "state_bytes", mean=True),
        seconds=_total(rounds, "seconds"),
        over_time=continual_figures(rounds, metrics[0]),
        simulated_seconds=max((row["simulated_end"] for row in rounds if "simulated_end" in row), default=None),
        joules=_known_total(rounds, "joules"),
        deploy_joules=_known_total(devices, "deploy_joules"),
        bytes_wifi=_known_total(rounds, "bytes_wifi"),
        bytes_cellular=_known_total(rounds, "bytes_cellular"),
        **recorded,
    )


def _figures(
    rows: Sequence[Row], metrics: Sequence[str], prefix: str | None = None, examples: str = "examples"
) -> Metrics:
    if prefix is not None:
        rows = [measured_as(row, prefix, metrics, examples) for row in rows]
    figures = {metric: fleet_figures(rows, metric) for metric in metrics}
    return {metric: asdict(figure) if figure else None for metric, figure in figures.items()}


def _fraction_hurt(rows: Sequence[Row], metric: str, reference: str) -> float | None:
    return fraction_hurt(gains(rows, metric, f"{reference}_{metric}"))


def _total(rows: Sequence[Row], name: str) -> Any:
    return sum(row[name] for row in rows)


def _known_total(rows: Sequence[Row], name: str, *, mean: bool = False) -> Any:
    """Return the sum or the mean of a column; None if no row has it, as in older records."""
    known = [row[name] for row in rows if row.get(name) is not None]
    if not known:
        return None
    return sum(known) / len(known) if mean else sum(known)
