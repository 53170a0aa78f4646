"""The types of a run's records: a line of `rounds.jsonl`, and a line of `devices.jsonl`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Self, TypeGuard

from odt_sim._support.text import few

MAX_NAMED = 5  # the most devices that a line names for each reason
HOSTILE = "hostile"
"""The reason why attacking devices are not evaluated: all metrics are those of honest devices."""


def is_failure(reason: str | None) -> TypeGuard[str]:
    """Return whether the reason why a device was not evaluated (None if it was) is a failure."""
    return reason not in (None, HOSTILE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Record(Mapping[str, Any]):
    """A JSON object with typed fields; also a read-only mapping of its columns, in the order of the file.

    A field without a default is in every file; a field with a default may be absent from files of older versions.

    Attributes:
        figures: Columns without their own field.
        order: All columns in the order of the file; empty for the order of the fields.
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Columns that the file omits if they are None; they come last."""

    figures: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Self:
        """Return the record of a JSON object.

        Raises:
            ValueError: A column is missing.
        """
        known = columns_of(cls)
        if missing := [name for name, required in known.items() if required and name not in columns]:
            raise ValueError(f"it lacks {missing[0]!r}")
        typed = {name: columns[name] for name in known if name in columns}
        figures = {name: value for name, value in columns.items() if name not in known}
        return cls(**typed, figures=figures, order=tuple(columns))

    def __getitem__(self, column: str) -> Any:
        if column not in self._columns:
            raise KeyError(column)
        return getattr(self, column) if column in columns_of(type(self)) else self.figures[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        if self.order:
            return self.order
        own = [name for name in columns_of(type(self)) if name not in self.OPTIONAL]
        return (*own, *self.figures, *(name for name in self.OPTIONAL if getattr(self, name) is not None))


@cache
def columns_of(record: type[Record]) -> Mapping[str, bool]:
    """Return the columns that have a field, and whether every file has them."""
    own = [item for item in fields(record) if item.name not in ("figures", "order")]
    return {item.name: item.default is MISSING and item.default_factory is MISSING for item in own}


def _by_device(reasons: Mapping[Any, str]) -> dict[int, str]:
    return {int(device): reason for device, reason in reasons.items()}


CLOCK_COLUMNS = (
    *("simulated_start", "simulated_end", "eligible", "ineligible", "selected", "reported", "partial", "late", "left"),
    *("stale", "staleness", "joules", "bytes_wifi", "bytes_cellular"),
)
"""The columns of a round of a run with a clock."""

LEDGER_COLUMNS = (
    "device_class",
    "available",
    "selected",
    "reported",
    "busy_seconds",
    "joules",
    "bytes_wifi",
    "bytes_cellular",
    "deploy_seconds",
    "deploy_joules",
)
"""The columns of a device of a run with a clock."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundRecord(Record):
    """A round: a line of `rounds.jsonl`. `figures` contains `m` and the other metrics if the round was evaluated.

    Only runs with a clock (`fleet.profiles`) have the columns from `simulated_start` on.
    """

    OPTIONAL = ("not_evaluated", *CLOCK_COLUMNS)

    round: Annotated[int, "number of the round, from 1"]
    strategy: Annotated[str, "name of the strategy"]
    devices: Annotated[int, "devices that contributed to the round"]
    excluded: Annotated[int, "devices that were excluded from the round"] = 0
    excluded_devices: Annotated[Sequence[int], "ids of the excluded devices"] = ()
    excluded_reasons: Annotated[Mapping[int, str], "reason for each exclusion, by id"] = field(default_factory=dict)
    quarantined: Annotated[int, "devices of the cohort that were quarantined before the round"] = 0
    newly_quarantined: Annotated[Sequence[int], "ids of the devices that were quarantined after the round"] = ()
    stragglers: Annotated[int, "devices of the cohort that were too slow to complete their work"] = 0
    train_loss: Annotated[float | None, "mean loss of the steps, each before its update; null without steps"]
    bytes_down: Annotated[int, "bytes that the cohort received"]
    bytes_up: Annotated[int, "bytes that the cohort sent, also in updates that were excluded"]
    train_calls: Annotated[int | None, "training steps of the cohort"] = None
    infer_calls: Annotated[int | None, "batches of inference of the cohort; embeddings count once a split and body"] = (
        None
    )
    seconds: Annotated[float, "wall-clock time of the round, evaluation included"]
    not_evaluated: Annotated[
        Mapping[int, str] | None, "why devices could not be evaluated, by id; absent if all were"
    ] = None
    simulated_start: Annotated[float | None, "simulated seconds at which the round began; 0 is a Monday, 00:00 UTC"] = (
        None
    )
    simulated_end: Annotated[float | None, "simulated seconds at which the server had its new model"] = None
    eligible: Annotated[
        int | None,
        "devices that could be selected at the start, of a large fleet an estimate; absent with asynchronous servers",
    ] = None
    ineligible: Annotated[
        int | None, "seen devices that could not be selected: unavailable, charge at the floor, or too little memory"
    ] = None
    selected: Annotated[int | None, "devices that were started; with asynchronous servers since the last round"] = None
    reported: Annotated[int | None, "devices with an update in time, also of partial work"] = None
    partial: Annotated[int | None, "reporting devices with partial work"] = None
    late: Annotated[int | None, "devices that were still working when the round ended"] = None
    left: Annotated[
        int | None, "devices that became unavailable, or whose battery reached the floor, while working"
    ] = None
    stale: Annotated[int | None, "updates that were too stale for an asynchronous server"] = None
    staleness: Annotated[float | None, "mean number of server updates since the devices of this one started"] = None
    joules: Annotated[float | None, "energy of all selected devices, lost work included"] = None
    bytes_wifi: Annotated[int | None, "bytes received and sent on Wi-Fi"] = None
    bytes_cellular: Annotated[int | None, "bytes received and sent on the cellular network"] = None

    def with_evaluation(self, figures: Mapping[str, Any], not_evaluated: Mapping[int, str] | None) -> "RoundRecord":
        """Return the record with this evaluation instead of its own; without figures, of a round without evaluation."""
        known = {name: self[name] for name in self if name not in {*self.figures, "not_evaluated"}}
        own = {name: value for name, value in known.items() if name not in self.OPTIONAL}
        missing = {} if not_evaluated is None else {"not_evaluated": not_evaluated}
        return RoundRecord.of({**own, **figures, **missing, **known})

    def __post_init__(self) -> None:
        """Convert device ids to numbers, because JSON keys are texts."""
        object.__setattr__(self, "excluded_reasons", _by_device(self.excluded_reasons))
        if self.not_evaluated is not None:
            object.__setattr__(self, "not_evaluated", _by_device(self.not_evaluated))


@dataclass(frozen=True, eq=False, kw_only=True)
class DeviceRecord(Record):
    """A device after the reported round: a line of `devices.jsonl`. `figures` contains its `DEVICE_FIGURES`.

    Only runs with a clock (`fleet.profiles`) have the columns from `device_class` on, which cover all rounds.
    """

    OPTIONAL = ("not_evaluated", "predictor_bytes", *LEDGER_COLUMNS)

    device: Annotated[int, "id of the device"]
    user: Annotated[int | str | None, "id of its user in the data, where all of its examples have one user"] = None
    seen: Annotated[bool, "whether the device takes part in training"]
    train_examples: Annotated[int, "training examples"]
    examples: Annotated[int, "test examples"]
    validation_examples: Annotated[int | None, "validation examples"] = None
    state_bytes: Annotated[int | None, "bytes that the device keeps from round to round"] = None
    deploy_train_calls: Annotated[int | None, "training steps that `deploy` takes"] = None
    deploy_infer_calls: Annotated[int | None, "batches of inference that `deploy` takes, without the evaluation"] = None
    predictor_bytes: Annotated[int | None, "bytes of the deployed predictor; absent where weights are deployed"] = None
    not_evaluated: Annotated[str | None, "why the device could not be evaluated; absent if it was"] = None
    device_class: Annotated[str | None, "class of the device in the table of `fleet.profiles`"] = None
    available: Annotated[float | None, "share of the run's simulated time in which the device was available"] = None
    selected: Annotated[int | None, "rounds in which the device was started; 0 for one that was never reached"] = None
    reported: Annotated[int | None, "rounds with an update of the device"] = None
    busy_seconds: Annotated[float | None, "simulated seconds from download to upload, lost work included"] = None
    joules: Annotated[float | None, "energy that the device spent"] = None
    bytes_wifi: Annotated[int | None, "bytes received and sent on Wi-Fi"] = None
    bytes_cellular: Annotated[int | None, "bytes received and sent on the cellular network"] = None
    deploy_seconds: Annotated[float | None, "seconds to compute what `deploy` takes; in no other column"] = None
    deploy_joules: Annotated[float | None, "energy to compute what `deploy` takes; in no other column"] = None


def by_reason(reasons: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Return the first devices of each reason as a text, such as `device 3, 4 and 2 more`."""
    devices: dict[str, set[int]] = {}
    for device, reason in reasons:
        devices.setdefault(reason, set()).add(device)
    return {reason: f"device {few(sorted(ids), MAX_NAMED)}" for reason, ids in devices.items()}


ROUND_FIGURES: Mapping[str, str] = {
    "m": "mean over the seen devices, weighted by their test examples",
    "m_unweighted": "the same mean, but with every device counted once",
    "m_unseen": "mean over the unseen devices, every device counted once",
    "validation_m": "mean over the seen devices, weighted by their validation examples",
    "period_1_m": "first metric on the test examples of the first period, and so on, where examples arrive over time",
    "validation_devices": "devices in the mean of the first metric on validation examples",
}
"""The columns of a round that was evaluated; a column is absent if no device has a finite value."""

DEVICE_FIGURES: Mapping[str, str] = {
    "period_1_m": "first metric on the test examples of the first period, and so on, where examples arrive over time",
    "m": "deployed model on the test examples",
    "train_m": "deployed model on the training examples",
    "validation_m": "deployed model on the validation examples",
    "global_m": "global model on the test examples, where the whole model travels",
    "local_m": "model of a device that trains alone; only the strategy `local` records it",
    "others_m": "deployed model on test examples of other devices",
    "attack_success": "share of triggered test examples that the deployed model answers as the attacker wants",
    "global_attack_success": "the same of the global model, where the whole model travels",
    "adapted_m": "unseen devices: deployed model after `fleet.adaptation_steps` more steps",
}
"""The metrics of a device, null or absent if unknown. Further columns are recorded by the strategy."""
