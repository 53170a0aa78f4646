"""Backend whose devices are phones; each browser that opens the address takes part in the run."""

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from odt_sim._support.system import check_extra
from odt_sim.device.engines import quiet
from odt_sim.errors import ConfigurationError, SimulationError, StrategyError
from odt_sim.model.contract.browsers import check_for_browsers
from odt_sim.model.tensors import read_only
from odt_sim.persistence.storage import check_writable
from odt_sim.phone.phones import Phones
from odt_sim.phone.worker import PhoneWorker
from odt_sim.simulation.executors.executor import Executor
from odt_sim.simulation.executors.job import Job
from odt_sim.simulation.run.messages import Assignment

LARGEST_PORT = 65535

COMPLETE = "The run has ended."
STOPPED = "The run was stopped and can be resumed."
FAILED = "The run has failed and can be resumed."


class PhonesBackend(Executor):
    """Backend with a web page that trains a device in each browser; strategies that read no examples run unchanged."""

    devices_leave = True

    def __init__(
        self,
        phones: int | None = None,
        host: str = "0.0.0.0",
        port: int = 8765,
        examples: Literal["slices", "own"] = "slices",
        assets: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        """Check the settings; start nothing yet.

        Args:
            phones: The number of phones to wait for before the first round; None for all devices of the fleet.
            host: The address to listen on; `0.0.0.0` for all addresses of this machine.
            port: The port; 0 for a free one.
            examples: `slices` sends phone k the run's data of device k; `own` trains on each phone's own examples.
            assets: A folder in which npm installed `@litertjs/core`; None to load it from a CDN.
            certificate: A certificate as a PEM file, to serve https; None for http.
            key: The certificate's key as a PEM file.

        Raises:
            ConfigurationError: A setting is out of range, or the extra `phone` is missing.
        """
        check_extra("phone")
        if phones is not None and phones < 1:
            raise ConfigurationError(f"backend.phones: expected at least 1 or null, found {phones}")
        if not 0 <= port <= LARGEST_PORT:
            raise ConfigurationError(f"backend.port: expected 0 to {LARGEST_PORT}, found {port}")
        if examples not in ("slices", "own"):
            raise ConfigurationError(f"backend.examples: expected slices or own, found {examples!r}")
        if (certificate is None) != (key is None):
            raise ConfigurationError("backend.certificate: needs backend.key, and vice versa; give both")
        self.phones, self.host, self.port, self.examples = phones, host, port, examples
        self.assets, self.certificate, self.key = assets, certificate, key
        self._opened = ExitStack()
        self._connected: Phones | None = None
        self._worker: PhoneWorker | None = None
        self._least, self._complete = 1, False
        self.own_examples = examples == "own"
        self.address = ""

    def open(self, job: Job) -> None:
        """Serve the page, print its address, and wait for the phones.

        Raises:
            StrategyError: The strategy reads examples.
            ModelError: Browsers cannot run the model.
            ConfigurationError: The run has device profiles, user-defined metrics or hostile devices, needs more phones
                than it has devices, or the server cannot be started.
            FileError: The run's storage cannot be written.
        """
        _check(job)
        devices = job.data.devices
        if self.phones is not None and self.phones > devices:
            raise ConfigurationError(
                f"backend.phones: expected at most fleet.devices, {devices}, found {self.phones}; use fewer"
            )
        check_writable(job.storage)
        connected = Phones(devices, job.storage)
        connected.record()
        with quiet():
            worker = PhoneWorker(job, connected)
        self._opened.callback(worker.close)
        try:
            self._serve(job, connected)
        except ConfigurationError as error:
            raise ConfigurationError(
                str(error).replace("--", "backend.")
            ) from error  # the server's messages name options of odt-sim phone
        self._opened.callback(self._dismiss, connected)
        self._complete = False
        self._connected, self._worker, self._least = connected, worker, max(1, job.fleet.min_devices)
        _wait_for(connected, "to begin", self.phones or devices, range(devices))
        connected.begin()

    def _serve(self, job: Job, connected: Phones) -> None:
        from odt_sim.phone.app import phone_app
        from odt_sim.phone.fleet_socket import Joining
        from odt_sim.phone.server import Server, Tls, address_of, listen, qr_code

        tls = Tls(Path(self.certificate), Path(self.key)).check() if self.certificate and self.key else None
        assets = Path(self.assets) if self.assets else None
        routes = Joining(job, connected, not self.own_examples).routes()
        app = phone_app(connected.token, self.host, page="fleet.html", assets=assets, routes=routes)
        listening = self._opened.enter_context(listen(self.host, self.port))
        self._opened.enter_context(Server(app, listening, tls, largest_message(job)))
        self.address = address_of(listening, connected.token, tls)
        _tell(f"Open this address on each phone:\n\n  {self.address}\n\n{qr_code(self.address)}\n")

    def run(self, assignment: Assignment, take: Callable[[Any], None]) -> None:
        """Run all blocks at once, after enough of their devices have connected to train, or one to be evaluated."""
        if self._worker is None or self._connected is None:
            raise SimulationError("backend phones: no job is open; call open first")
        (tasks, messages), worker = assignment, self._worker
        devices = [id for task in tasks for id in task.devices]
        purpose, least = ("for the next round", self._least) if assignment.trains else ("to evaluate", 1)
        _wait_for(self._connected, purpose, min(least, len(devices)), devices)
        received = read_only(messages.broadcast)
        for result in worker.at_once(lambda task: worker.run(messages.addressed(task), received), tasks):
            take(result)
        self._complete = any(task.kind == "final" for task in tasks)

    def close(self) -> None:
        """Disconnect the phones and stop the server."""
        self._opened.close()
        self._worker = self._connected = None

    def _dismiss(self, connected: Phones) -> None:
        """Disconnect the phones; after a stop or a failure, they join again if the run is resumed."""
        failed = isinstance(sys.exception(), Exception)  # a stop is a KeyboardInterrupt
        connected.end(COMPLETE if self._complete else FAILED if failed else STOPPED, again=not self._complete)


def _check(job: Job) -> None:
    """Check that phones support a job."""
    if job.strategy.reads_examples:
        raise StrategyError(
            f"strategy {job.strategy.name}: reads the devices' examples or the model's outputs for them, which "
            "phones do not send; choose another strategy or backend=ray"
        )
    if job.own_metrics:
        raise ConfigurationError(
            f"metrics: {job.own_metrics[0].name}: not supported by phones, which compute metrics in their browsers; "
            "leave it out, or choose another backend"
        )
    if job.hostile:
        raise ConfigurationError(
            f"fleet.hostile: expected 0 with backend=phones, whose devices train on their own examples, found "
            f"{len(job.hostile)}; choose another backend"
        )
    if table := job.fleet.profiles.table:
        raise ConfigurationError(
            f"fleet.profiles: expected null with backend=phones, whose time and availability are real, found {table}; "
            "leave it out or choose another backend"
        )
    check_for_browsers(job.model)


def _wait_for(connected: Phones, purpose: str, count: int, devices: Collection[int]) -> None:
    def waiting(here: int) -> None:
        _tell(f"waiting for phones {purpose}: {here} of {count} connected")

    connected.wait_for(count, devices, waiting)


def largest_message(job: Job) -> int:
    """Return the maximum size of a phone's message in bytes: all weights and slots, plus a header and the losses."""
    slots = sum(8 * max(1, size) for slot in job.model.slots for size in [_size(slot.shape)])
    return 4 * job.model.layout.size + slots + (4 << 20)


def _size(shape: Sequence[int]) -> int:
    size = 1
    for axis in shape:
        size *= axis
    return size


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
