"""How this process starts a Ray of its own, or joins a cluster."""

import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import ray
from ray._private import ray_constants, services
from ray._private.node import Node
from ray._private.utils import detect_fate_sharing_support, get_dashboard_dependency_error

from odt_sim.cli import interrupt
from odt_sim.errors import SimulationError
from odt_sim.memory import share_arenas
from odt_sim.simulation.native_output import quiet
from odt_sim.simulation.ray.call_errors import one_line
from odt_sim.simulation.ray.join_check import why_not
from odt_sim.simulation.ray.watchdog import guard, settled

SYSTEM = {
    # The backend starts actors in waves itself; Ray would warn of many actors, whether they start at once or not.
    "worker_maximum_startup_concurrency": 1000,
    # A result up to here goes straight to the coordinator: for a small model's sums that is half the cost of the store.
    "max_direct_call_object_size": 2 << 20,
}

LOOPBACK = "127.0.0.1"

NEEDLESS = ("start_monitor", "start_log_monitor")
"""What starts the autoscaler and the sender of logs to drivers, which a Ray of one process has no use for."""

DASHBOARD = "start_api_server"
"""What starts the dashboard's server, as needless; but where `ray[default]` is installed, nodes ask for it every second."""

_joined: dict[str, tuple[str, Mapping[str, Any]]] = {}  # by Ray session: the address and the environment asked for


def join_cluster(address: str, runtime_env: Mapping[str, Any]) -> None:
    """Starts Ray or joins a cluster, unless this process has done so before.

    Args:
        address: `local` for a Ray of its own, `auto` or `host:port` for a cluster that runs.
        runtime_env: Ray's runtime environment of all processes of the job; empty for that of each node.

    Raises:
        SimulationError: No cluster answers at the address, its versions are others, or this process uses another one.
    """
    with settled:
        if ray.is_initialized():
            _check_joined(address, runtime_env)
            return
        share_arenas()  # before Ray starts its threads
        with _handler_kept():
            if address == "local":
                _start_own(runtime_env)
            else:
                _join(address, runtime_env)
        _joined[session()] = address, runtime_env
        guard(local=address == "local")


@contextmanager
def _handler_kept() -> Iterator[None]:
    """Gives SIGTERM the caller's handler again, where there was one: Ray puts one of its own in its place."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _start_own(runtime_env: Mapping[str, Any]) -> None:
    try:
        with _on_loopback(), _needed_only(), _out_of_group():
            ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,  # what goes wrong reaches the user as an error of ours
                runtime_env=dict(runtime_env) or None,
                _node_ip_address=LOOPBACK,
                _system_config=SYSTEM,
            )
    except Exception as error:  # whatever it is: Ray raises plain ones, too
        raise SimulationError(
            f"backend.address=local: cannot start Ray ({one_line(error)}); look at Ray's own logs"
        ) from error


def _on_loopback() -> AbstractContextManager[None]:
    """Lets a Ray that is started keep to the loopback address.

    Where Ray supports clusters, as on Linux, it would put an address of the machine in its place, and listen to everyone.
    """
    return _changed(ray_constants, ENABLE_RAY_CLUSTER=False)


def _needed_only() -> AbstractContextManager[None]:
    """Lets a Ray that is started leave out what is needless: half of the CPU time in which it starts, and 140 MB.

    `ray.init` has no setting for it.
    """
    names = NEEDLESS if get_dashboard_dependency_error() is None else (*NEEDLESS, DASHBOARD)
    return _changed(Node, **{name: lambda self, **_: None for name in names if hasattr(Node, name)})


def _out_of_group() -> AbstractContextManager[None]:
    """Lets the processes of a Ray that is started leave the process group of this one, where they end with it anyway.

    A SIGTERM to the group, as `timeout` sends it, would end them too; and Ray without its node ends this process with code 1
    and no word.
    """
    if not detect_fate_sharing_support():  # type: ignore[no-untyped-call]
        return nullcontext()
    return _changed(services, ConsolePopen=_start)


def _start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process of Ray's in a group of its own; what that has started would outlive this one by a minute.

    Linux ends it with the thread that starts it, and the caller's may end before this process does.
    """
    started = Future[subprocess.Popen[bytes]]()

    def last() -> None:
        try:
            process = subprocess.Popen(*arguments, process_group=0, **options)
        except BaseException as error:
            started.set_exception(error)
            return
        interrupt.before_end(partial(_end_group, process))
        started.set_result(process)
        with suppress(ChildProcessError):  # Ray was first to ask how it has ended, which is left to it
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=last, daemon=True).start()
    return started.result()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # else Ray has seen it end, and its number may be another's
        os.killpg(process.pid, signal.SIGKILL)  # Ray's agents heed no SIGTERM once they miss the raylet


@contextmanager
def _changed(owner: Any, **values: Any) -> Iterator[None]:
    """Gives attributes of Ray's other values for a while."""
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def _join(address: str, runtime_env: Mapping[str, Any]) -> None:
    _check_answers(address)
    if reason := why_not(address):
        raise SimulationError(f"backend.address={address}: {reason}")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # of this process; nodes that die are in the nodes' logs
    try:
        with quiet():
            ray.init(
                address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=dict(runtime_env) or None
            )
    except Exception as error:  # whatever it is: Ray raises plain ones, too
        raise SimulationError(
            f"backend.address={address}: cannot join Ray ({one_line(error)}); look at Ray's own logs"
        ) from error


def session() -> str:
    """Returns what tells the Ray that this process uses from any other."""
    return str(ray.get_runtime_context().get_session_name())


def _check_joined(address: str, runtime_env: Mapping[str, Any]) -> None:
    joined, environment = _joined.get(session(), (address, {}))  # a Ray that the caller started will do
    if joined != address:
        raise SimulationError(
            f"backend.address={address}: this process uses the Ray at {joined} already, and can use one only; "
            "run them one by one"
        )
    if environment != runtime_env:
        raise SimulationError(
            f"backend.runtime_env: this process uses Ray with {environment or 'none'} already, and can use one only; "
            "run them one by one"
        )


def _check_answers(address: str) -> None:
    """Fails within seconds, where Ray would try for long, if nothing listens at `host:port`."""
    if address.startswith("ray://"):
        raise SimulationError(
            f"backend.address={address}: Ray Client has no access to a node's memory; run odt-sim on a node of the "
            "cluster with backend.address=auto, or by ray job submit"
        )
    endpoint = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if ":" not in endpoint:
        return
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            pass
    except (OSError, ValueError, OverflowError) as error:
        where = address if address == endpoint else f"{address} (RAY_ADDRESS={endpoint})"
        raise SimulationError(
            f"backend.address={where}: nothing answers there ({one_line(error)}); give a Ray head, auto or local"
        ) from error
