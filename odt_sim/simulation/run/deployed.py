"""The devices of a complete run, with the models that their users get."""

from collections.abc import Iterable, Iterator, Sequence

from threadpoolctl import threadpool_limits

from odt_sim._support.checks import Range, fits, shown
from odt_sim.device.device import Device
from odt_sim.errors import ConfigurationError
from odt_sim.model.tensors import read_only
from odt_sim.persistence.commit import Commit
from odt_sim.simulation.executors.job import Job, Task
from odt_sim.simulation.executors.worker import Worker
from odt_sim.simulation.run.messages import Messages
from odt_sim.simulation.run.start import initial_weights


def checked_ids(devices: Iterable[int], count: int) -> list[int]:
    """Return ids of devices of a fleet of `count` devices.

    Raises:
        ConfigurationError: The fleet has no such device.
    """
    if not isinstance(devices, Iterable) or isinstance(devices, str):
        raise ConfigurationError(
            f"Simulation.deployed: expected a list of devices, found {shown(devices)}; put the id in a list: deployed([0])"
        )
    chosen, ids = list(devices), Range(least=0, below=count)
    for device in chosen:
        if not fits(device, int, ids):
            raise ConfigurationError(f"device {device}: expected an id from 0 to {count - 1}")
    return chosen


def deployed(job: Job, commit: Commit, devices: Sequence[int]) -> Iterator[Device]:
    """Yield devices after a committed round with their deployed models; see `Simulation.deployed`.

    Raises:
        SimulationError: The strategy failed on a device.
    """
    initial_weights(job.model, job.runtime)  # hides the line that LiteRT's first interpreter prints
    versions, worker, messages = commit.versions.of(devices), Worker(job), Messages(job, commit.state)
    with threadpool_limits(1, "blas"):  # as in the run
        for device in devices:
            own = {device: versions[device]} if device in versions else {}
            task = messages.addressed(Task("final", commit.round, (device,), own))
            yield from worker.deployed(task, read_only(messages.broadcast))
