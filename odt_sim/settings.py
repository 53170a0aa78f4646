"""The settings of a run, by group; `TrainingPlan` has those of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from odt_sim._support.checks import Range, fits
from odt_sim._support.text import counted
from odt_sim.declarations import REQUIRED, Settings, readers, setting
from odt_sim.errors import ConfigurationError

ASYNCHRONOUS = ("fedbuff", "fedasync")  # kinds of schedules
LONGEST_TIMEOUT = 1e7  # seconds; timers overflow far above


@dataclass(frozen=True)
class General(Settings, group=""):
    """Settings outside any group."""

    seed: int = setting(0, "random seed of the partition, the splits, the cohorts and the batch orders", least=0)
    metrics: Sequence[str] | None = setting(
        None,
        "your own metrics: [module.function, ...], each a function of a device's outputs and targets; null for none",
    )
    callbacks: Sequence[Any] | None = setting(
        None,
        "your own functions or observers that receive each round's record and may end the run: [module.function, ...], or "
        "{_target_: module.Class, and its settings}; null for none",
    )


@dataclass(frozen=True)
class Budget(Settings, group="run.budget"):
    """What a run may spend; the round that reaches it is the last. `run.budget=1000` is short for `run.budget.steps=1000`."""

    steps: int | None = setting(None, "training steps of all devices; null for no limit", least=1)
    megabytes: float | None = setting(None, "megabytes that devices receive and send; null for no limit", above=0)


@dataclass(frozen=True)
class Run(Settings, group="run"):
    """Length, evaluation, early stopping and storage of a run."""

    rounds: int = setting(40, "number of rounds", least=1)
    evaluate_every: int | None = setting(None, "rounds between evaluations of all devices; null for about ten", least=1)
    target: float | None = setting(
        None,
        "accuracy from 0 to 1, or value of the task's first metric; the summary reports the first round that reaches it; "
        "null for none",
    )
    metric: str | None = setting(
        None, "metric that selects the reported round and that reports compare; null for the first one of the task"
    )
    until: Literal["target", "plateau"] | None = setting(
        None, "stop early: at run.target, or when validation stops improving; null runs all rounds"
    )
    budget: Budget = setting(Budget(), "what the run may spend")  # noqa: RUF009
    patience: int = setting(3, "evaluations without improvement before run.until=plateau stops the run", least=1)
    resume: str | None = setting(
        None,
        "folder of a run or a sweep to resume; auto for the newest unfinished run of this configuration, else a new run",
    )
    storage: str | None = setting(
        None, "folder or URI of the checkpoint, with a subfolder for each job of a sweep; null for the run's folder"
    )

    def __post_init__(self) -> None:
        """Check types and ranges, and that early stopping has its target."""
        super().__post_init__()
        if self.until == "target" and self.target is None:
            raise ConfigurationError("run.until: target needs run.target, found null; set it: run.target=0.9")


@dataclass(frozen=True)
class Profiles(Settings, group="fleet.profiles"):
    """What the devices are like; `fleet.profiles=phones` is short for `fleet.profiles.table=phones`."""

    table: str | None = setting(
        None,
        "phones for the shipped table; a .csv or .yaml file with your own table; a .json file that a phone measured, or a "
        "folder of them; null to simulate no time, energy or memory",
    )
    calibration: str | None = setting(
        None, "calibration.json of another run, to use the same times; null measures the model on this machine, once"
    )


@dataclass(frozen=True)
class Availability(Settings, group="fleet.availability"):
    """When devices are available; `fleet.availability=daily` is short for `fleet.availability.kind=daily`."""

    kind: str | None = setting(
        None,
        "always; daily: a share of the devices, by local time; charging: devices that are charging, idle and on Wi-Fi; "
        "markov: on and off at random; or a .csv file with device, from, to in seconds; null for always, without a clock",
    )
    time_zones: Mapping[str, float] | None = setting(
        None, "share of devices in each time zone, such as {Europe/Berlin:1,America/New_York:2}; null for UTC"
    )
    peak: float = setting(0.4, "available share of the devices at 2 h (at night)", above=0, most=1, kind="daily")
    low: float = setting(0.1, "available share of the devices at 14 h", least=0, most=1, kind="daily")
    on_hours: float = setting(2.0, "mean hours for which a device is available", above=0, kind="markov")
    off_hours: float = setting(6.0, "mean hours for which a device is unavailable", above=0, kind="markov")
    repeat_hours: float | None = setting(
        None,
        "a .csv file: hours after which it repeats, such as 24; null: a run that is longer than the file fails",
        above=0,
    )
    floor: float = setting(
        0.2, "battery charge, 0 to 1, at which training stops; needs fleet.profiles", least=0, below=1
    )

    def __post_init__(self) -> None:
        """Check types, ranges, the time zones' shares, and low against peak."""
        super().__post_init__()
        if self.repeat_hours is not None and not (self.kind or "").endswith(".csv"):
            raise ConfigurationError(
                f"fleet.availability.repeat_hours: expected null with fleet.availability.kind={self.kind or 'null'}, found "
                f"{self.repeat_hours:g}; only a .csv file uses it"
            )
        if self.low > self.peak:
            raise ConfigurationError(
                f"fleet.availability.low: expected at most peak, {self.peak:g}, found {self.low:g}"
            )
        for zone, share in (self.time_zones or {}).items():
            if not fits(share, float, Range(above=0)):
                raise ConfigurationError(
                    f"fleet.availability.time_zones: expected a share above 0 for {zone}, found {share!r}"
                )


@dataclass(frozen=True)
class Schedule(Settings, group="fleet.schedule"):
    """When the server starts devices and updates its model; `fleet.schedule=oort` is short for `fleet.schedule.kind=oort`."""

    kind: Literal["synchronous", "oort", "fedbuff", "fedasync"] = setting(
        "synchronous",
        "synchronous: rounds of uniformly drawn devices; oort: rounds of devices that learn much and report fast; fedbuff: "
        "a server update after every few reports; fedasync: after every report",
    )
    hours: float | None = setting(None, "simulated hours after which the run ends; null for run.rounds alone", above=0)
    check_in: float = setting(
        0.0,
        "seconds between a device's requests for work to the server; a device starts at its next request",
        least=0,
    )
    overselection: float = setting(
        1.0, "devices that start, per report that is needed", least=1, kind="synchronous, oort"
    )
    deadline: float | None = setting(
        None, "seconds after which a round ends; null waits for all reports", above=0, kind="synchronous, oort"
    )
    min_reports: int = setting(
        1, "fewest reports in a round; with fewer, the model stays unchanged", least=1, kind="synchronous, oort"
    )
    pacer_seconds: float | None = setting(
        None,
        "initial preferred duration of a round in seconds, and its step; null for that of the fastest 30%",
        above=0,
        kind="oort",
    )
    concurrency: int | None = setting(
        None, "devices that train at once; null for fleet.cohort", least=1, kind="fedbuff, fedasync"
    )
    buffer: int = setting(10, "reports per server update", least=1, kind="fedbuff")
    mixing: float = setting(0.6, "share of a device's model in the server's new one", above=0, most=1, kind="fedasync")
    max_staleness: int | None = setting(
        None,
        "largest number of server updates since a device started; above it, its report is dropped",
        least=0,
        kind="fedbuff, fedasync",
    )
    staleness: Literal["polynomial", "hinge", "constant"] = setting(
        "polynomial",
        "weight of a report that is s updates old: polynomial, (1 + s)^-exponent; hinge; or constant, 1",
        kind="fedbuff, fedasync",
    )
    exponent: float = setting(0.5, "exponent of the weight", least=0, kind="fedbuff, fedasync", staleness="polynomial")
    hinge_after: int = setting(4, "largest s with full weight", least=0, kind="fedbuff, fedasync", staleness="hinge")
    hinge_slope: float = setting(
        10.0,
        "slope in the weight of older reports, 1 / (slope (s - after) + 1)",
        least=0,
        kind="fedbuff, fedasync",
        staleness="hinge",
    )


READ_BY = readers(Schedule, "kind")
"""The kinds of a schedule that read a setting, by its name; all kinds read the others."""


@dataclass(frozen=True)
class Fleet(Settings, group="fleet"):
    """Devices that take part in training and evaluation."""

    cohort: int | None = setting(None, "devices in a round; null for all seen devices", least=1)
    unseen: int | Sequence[int] = setting(
        0, "number of devices kept out of training, drawn by the seed, or a list of their ids, such as [3]", least=0
    )
    min_devices: int = setting(1, "fewest contributing devices; a round with fewer ends the run", least=0)
    stragglers: float = setting(
        0.0, "fraction of a round's devices that are slow; fedprox and fednova use their partial work, others drop it",
        least=0, below=1,
    )  # fmt: skip
    adaptation_steps: int = setting(
        10, "local steps after which unseen devices are evaluated a second time; 0 for no second evaluation", least=0
    )
    evaluated: int | None = setting(
        None, "number of devices to evaluate, drawn once, seen and unseen in proportion; null for all", least=1
    )
    timeout: float | None = setting(
        None, "seconds for training or evaluating a device, after which it is excluded; null for no limit",
        above=0, most=LONGEST_TIMEOUT,
    )  # fmt: skip
    largest_update: float | None = setting(
        1e6, "largest L2 norm of an update; larger ones are excluded; null for no limit", above=0
    )
    quarantine_after: int | None = setting(
        3, "consecutive excluded rounds after which a device is quarantined; null for never", least=1
    )
    profiles: Profiles = setting(Profiles(), "what the devices are like")  # noqa: RUF009
    availability: Availability = setting(Availability(), "when devices are available")  # noqa: RUF009
    schedule: Schedule = setting(Schedule(), "when the server starts devices and updates its model")  # noqa: RUF009
    hostile: int | Sequence[int] = setting(
        0,
        "number of devices that attack, drawn by the seed from the seen ones, or a list of ids; no metric includes them",
        least=0,
    )

    def __repr__(self) -> str:
        """Return one line with the settings that are not the defaults."""
        given = ((each, getattr(self, each.name)) for each in fields(self))
        return f"Fleet({', '.join(f'{each.name}={value!r}' for each, value in given if value != each.default)})"

    @property
    def unseen_count(self) -> int:
        """The number of devices kept out of training."""
        return len(self.unseen) if isinstance(self.unseen, Sequence) else self.unseen

    @property
    def hostile_count(self) -> int:
        """The number of devices that attack."""
        return len(self.hostile) if isinstance(self.hostile, Sequence) else self.hostile

    def check_size(self, devices: int) -> None:
        """Check the settings that depend on the number of devices.

        Raises:
            ConfigurationError: A number is out of its range.
        """
        for name in ("unseen", "hostile"):
            if isinstance(ids := getattr(self, name), Sequence):
                _check_ids(name, ids, devices)
        seen = devices - self.unseen_count
        cohort = seen if self.cohort is None else self.cohort
        evaluated = devices if self.evaluated is None else self.evaluated
        ranges = {
            "unseen": (self.unseen_count, 0, devices - 1),
            "hostile": (self.hostile_count, 0, seen - 1),
            "cohort": (cohort, 1, seen),
            "min_devices": (self.min_devices, 0, cohort),
            "evaluated": (evaluated, 1 + bool(self.unseen_count), devices),
        }
        for name, (value, least, most) in ranges.items():
            if not least <= value <= most:
                further = (
                    "; set a smaller fleet.unseen (default on the command line: 4), or 0 to train all devices"
                    if name == "unseen"
                    else f", {self.unseen_count} of them unseen (fleet.unseen)"
                )
                raise ConfigurationError(
                    f"fleet.{name}: expected {least} to {most}, found {value}; the fleet has "
                    f"{counted(devices, 'device')}{further}"
                )


def _check_ids(name: str, ids: Sequence[int], devices: int) -> None:
    if not all(fits(device, int, Range(least=0, below=devices)) for device in ids) or len(set(ids)) < len(ids):
        raise ConfigurationError(
            f"fleet.{name}: expected a list of different ids from 0 to {devices - 1}, found {list(ids)}"
        )


@dataclass(frozen=True)
class ConfiguredFleet(Fleet, group="fleet"):
    """The fleet of a configuration, which also chooses the number of devices."""

    devices: int | None = setting(20, "devices in the fleet; null for every user of partition=by_user", least=1)


@dataclass(frozen=True)
class Split(Settings, group="split"):
    """The split of each device's examples."""

    method: Literal["stratified", "random", "block", "given"] = setting(
        "stratified",
        "stratified: similar labels in each part; random; block: contiguous parts, for overlapping windows; given: by the "
        "data",
    )
    validation: float = setting(0.2, "fraction of examples for model selection; 0 for none", least=0, below=1)
    test: float = setting(0.2, "fraction of examples for reported metrics; the rest is for training", above=0, below=1)
    gap: int = setting(1, "examples dropped between two parts", least=0, method="block")

    def __post_init__(self) -> None:
        """Check types and ranges, and that examples for training remain."""
        super().__post_init__()
        if self.validation + self.test >= 1:
            raise ConfigurationError(
                f"split: expected validation and test to sum to below 1, found {self.validation} and {self.test}"
            )


@dataclass(frozen=True)
class ModelFile(Settings, group="model"):
    """A trainable `.tflite` file."""

    path: str = setting(REQUIRED, "the file")
    loss: str | None = setting(
        None, "loss of a file without a manifest, such as mean_squared_error; null infers it if that is certain"
    )
    from_logits: bool = setting(True, "whether the model's output is logits for that loss")
    signatures: Mapping[str, Any] | None = setting(
        None,
        "for a file without a manifest: signature by role, or {name: train_epoch, x: features, y: labels, loss: l}",
    )
    groups: Mapping[str, Any] | None = setting(
        None,
        "for a file without a manifest: layers by name or weights by number, one or a list, for each group such as head",
    )


@dataclass(frozen=True)
class ExportedModel(Settings, group="model"):
    """A Keras or PyTorch model that is exported before the run."""

    name: str = setting(REQUIRED, "model name in files and messages")
    path: str | None = setting(None, "the .keras or .h5 file, or the SavedModel's folder, of model=keras_file")
    build: Mapping[str, Any] = setting(
        REQUIRED, "function that returns the model, or the model and an example (x, y), as _target_, and its arguments"
    )
    loss: str | Mapping[str, Any] | None = setting(
        REQUIRED,
        "any loss of keras.losses, or the path of your own function (y_true, y_pred); for several outputs, a mapping by "
        "name; null for the loss of model.compile",
    )
    loss_weights: Mapping[str, float] | None = setting(None, "factor of each output's loss, by output name; null for 1")
    optimizer: Mapping[str, Any] | None = setting(
        REQUIRED,
        "name of a class in keras.optimizers, or the path of your own class, and its settings; learning_rate may be a "
        "schedule; null for the optimizer of model.compile",
    )
    default_rates: Mapping[str, float] | None = setting(
        None,
        "default learning rate by optimizer, if it is not Keras' default; model.optimizer.learning_rate overrides it",
    )
    batch_size: int | None = setting(
        16, "examples in a training step; null exports a file that accepts any number", least=1
    )
    seed: int = setting(0, "random seed of the initial weights", least=0)
    sys_path: Sequence[str] | None = setting(
        None, "folders to search for the build function, in addition to the working folder"
    )
    head: str | Sequence[str] | None = setting(
        None,
        "layers of the head: a name, of a layer or a nested model, a pattern such as decoder_*, or a list of these; null "
        "for the last layer with weights",
    )
    class_weight: Mapping[Any, float] | None = setting(None, "factor of each class in the loss, such as '{0:1,1:5}'")
    task: str | Mapping[str, str] | None = setting(
        None,
        "classification, segmentation, regression, multi_label, ranking, transcription or other; null derives it from the "
        "loss, and your own loss is other",
    )
    metrics: Sequence[str] | Mapping[str, Sequence[str]] | None = setting(
        None, "further metrics of odt_sim or Keras, such as [top_3]; for several outputs, a mapping by name"
    )
    train_groups: Sequence[str] | None = setting(None, "groups that get their own training signature: head, body, norm")
    embed: bool = setting(False, "export a signature that returns the input of the head")
    check: bool = setting(True, "compare the exported file with the model")
    gradient_offset: bool = setting(False, "export steps that accept a gradient offset, as proximal strategies need")
    terms: Sequence[str] | None = setting(
        None, "loss terms that a strategy weights, such as [distillation], or paths of your own functions"
    )
    lora_rank: int | None = setting(None, "rank of the low-rank adapters that train instead of the weights", least=1)
