"""Flower `ClientApp` for a device of odt_sim."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from threadpoolctl import threadpool_limits

from odt_sim.aggregators.base import Aggregator
from odt_sim.attacks.base import Attack
from odt_sim.data.devices.federated import FederatedData
from odt_sim.device.plan import TrainingPlan
from odt_sim.errors import ConfigurationError, OdtSimError, SimulationError
from odt_sim.flower.messages import (
    ACTION,
    body_of,
    content_of,
    packed,
    shared_weights,
    task_of,
    trained_content,
    weights_of,
)
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.device_states import state_name
from odt_sim.persistence.storage import Folder
from odt_sim.persistence.versions import Version
from odt_sim.settings import Fleet
from odt_sim.simulation.executors.job import Job, Task
from odt_sim.simulation.executors.worker import Worker
from odt_sim.simulation.run.checks import checked_job
from odt_sim.simulation.run.run_settings import settings
from odt_sim.strategies.base import Strategy

STATES = "odt_sim.states"
"""Name of the record with a node's states in Flower's context, which is private to the node: file contents by name."""


def client_app(
    model: TrainableModel,
    data: FederatedData,
    strategy: Strategy,
    *,
    plan: TrainingPlan | None = None,
    fleet: Fleet | None = None,
    seed: int = 0,
    aggregator: Aggregator | None = None,
    attack: Attack | None = None,
) -> ClientApp:
    """Return the app for a fleet's nodes; the node with `partition-id=3` is device 3.

    Flower's own strategies train and evaluate the device as in odt_sim; the device's state stays on the node.
    `server_app` runs odt_sim's strategies.

    Args:
        model: The model that all devices train.
        data: The devices' examples.
        strategy: The strategy of the devices. With Flower's own strategies, it must send only weights.
        plan: The local training; by default one epoch at the model's own learning rate.
        fleet: The fleet of `server_app`.
        seed: The random seed of batch orders.
        aggregator: The aggregator of `server_app`.
        attack: The attack of `server_app`, for `fleet.hostile` devices.

    Raises:
        OdtSimError: Model, data and strategy are incompatible; see `Simulation`.
    """
    nowhere = Folder(Path())  # each call uses its own folder
    options: dict[str, Any] = {"fleet": fleet, "plan": plan, "aggregator": aggregator, "attack": attack}
    job = checked_job(model, data, strategy, seed=seed, storage=nowhere, **options)
    job = replace(job, fleet=replace(job.fleet, timeout=None))  # the server measures the time
    app = ClientApp()
    app.train()(_replying(job, _train))
    app.evaluate()(_replying(job, _evaluate))
    app.query(ACTION)(
        _replying(job, lambda job, device, *_: content_of({"device": device, "settings": described(job)}))
    )
    app.train(ACTION)(_replying(job, _run_task))
    app.evaluate(ACTION)(_replying(job, _run_task))
    return app


Work = Callable[[Job, int, Message, Context], RecordDict]


def _replying(job: Job, work: Work) -> Callable[[Message, Context], Message]:
    """Return a Flower handler that runs `work` for the node's device and replies with the result."""

    def reply(message: Message, context: Context) -> Message:
        with (
            threadpool_limits(1, "blas"),
            _kept(job, context.state) as job_of_node,
        ):  # one thread, as in runs of odt_sim
            return Message(work(job_of_node, _device(job, context), message, context), reply_to=message)

    return reply


def _device(job: Job, context: Context) -> int:
    """Return the device of a node."""
    device = context.node_config.get("partition-id")
    if not isinstance(device, int) or not 0 <= device < job.data.devices:
        raise ConfigurationError(
            f"flower: expected a partition-id from 0 to {job.data.devices - 1}, found {device}; start the node with "
            f"--node-config 'partition-id=0 num-partitions={job.data.devices}'"
        )
    return device


@contextmanager
def _kept(job: Job, state: RecordDict) -> Iterator[Job]:
    """Yield the job with a folder of the node's states, which Flower's context stores between calls."""
    with TemporaryDirectory() as path:
        folder = Folder(Path(path))
        for name, content in state.get(STATES, {}).items():
            folder.add(name, content)
        yield replace(job, storage=folder)
        state[STATES] = ConfigRecord({name: Path(folder.where(name)).read_bytes() for name in folder.names()})


# --- Flower's strategies ----------------------------------------------------------------------------------------------


def _train(job: Job, device: int, message: Message, context: Context) -> RecordDict:
    """Train from the message's arrays, and return the device's weights, number of examples and loss."""
    sent = _received(job, message)
    task = _next_task(job, "train", device, message, context)
    trained = Worker(job).run(task, {"weights": sent})
    if trained.excluded:
        raise SimulationError(f"device {device}: excluded from round {task.round}: {trained.excluded[device]}")
    if task.versions and trained.stateful:
        job.storage.delete([state_name(task.versions[device])])
    after = sent + type(sent)(sent.layout, trained.sums["weights"])
    loss = {"train_loss": trained.loss_sum / trained.loss_weight} if trained.loss_weight else {}
    return RecordDict({"arrays": packed(after), "metrics": MetricRecord({"num-examples": trained.weight, **loss})})


def _evaluate(job: Job, device: int, message: Message, context: Context) -> RecordDict:
    """Return the loss and the first metric of the model deployed to the device's user, on the device's examples."""
    task = _next_task(job, "evaluate", device, message, context)
    [row] = Worker(job).run(task, {"weights": _received(job, message)})
    if "not_evaluated" in row:
        raise SimulationError(f"device {device}: not evaluated after round {task.round}: {row['not_evaluated']}")
    names = dict.fromkeys(("loss", job.metrics[0]))  # others may be undefined on a few devices, which Flower rejects
    figures = {name: float(row[name]) for name in names if name in row}
    return RecordDict({"metrics": MetricRecord({"num-examples": row["examples"], **figures})})


def _received(job: Job, message: Message) -> Any:
    expected = shared_weights(job.model, job.strategy).layout
    return weights_of(job.model, message.content["arrays"]).select(expected)


def _next_task(job: Job, kind: Any, device: int, message: Message, context: Context) -> Task:
    """Return a task that uses the device's last state."""
    rounds = [int(name.split(".")[1]) for name in context.state.get(STATES, {})]
    versions = {device: Version(max(rounds), device)} if rounds else {}
    return Task(kind, int(message.content["config"]["server-round"]), (device,), versions)


# --- odt_sim's strategies ---------------------------------------------------------------------------------------------


def described(job: Job) -> dict[str, str]:
    """Return the settings that server and nodes must share, by dotted name."""
    return {**settings(job), "seed": str(job.seed)}


def _run_task(job: Job, device: int, message: Message, context: Context) -> RecordDict:
    """Train or evaluate according to the server's task; a failure that ends the run is sent instead of the result."""
    body = body_of(message.content)
    training = body["kind"] == "train"
    if training:  # states of other rounds are not needed any more
        kept = {state_name(Version(round, device)) for round in {*body["kept"], *(body["version"] or ())[:1]}}
        job.storage.delete(name for name in job.storage.names() if name not in kept)
    try:
        result = Worker(job).run(*task_of(message.content, job.model))
        return trained_content(result, device) if training else content_of({"rows": result})
    except OdtSimError as error:
        return content_of({"failure": str(error)})
