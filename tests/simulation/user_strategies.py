"""Strategies that fail like user code, in this process or in a worker."""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from odt_sim.model.weights import Weights
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.base import ServerState
from odt_sim.strategies.shared_parts.fedper import FedPer


class Raises(FedAvg):
    """Fails on one device of the second round, some lines below `local`."""

    def local(self, device, broadcast):
        if (device.id, device.round) == (4, 2):
            self.look_up("mu")
        return super().local(device, broadcast)

    def look_up(self, name):
        return {}[name]


class RaisesInDeploy(FedAvg):
    def deploy(self, device, broadcast):
        raise ValueError("two\nlines")


class ExitsInLocal(FedAvg):
    def local(self, device, broadcast):
        sys.exit("no data")


class DeploysAnArray(FedAvg):
    def deploy(self, device, broadcast):
        return super().deploy(device, broadcast).vector


class RaisesInAggregate(FedAvg):
    def aggregate(self, state, updates):
        return state / updates.count


class RaisesInInit(FedAvg):
    def init(self, initial):
        raise RuntimeError("no start")


class RaisesDeepInNumpy(FedAvg):
    def local(self, device, broadcast):
        np.concatenate([np.zeros(2), np.zeros((2, 2))])


class ForgetsToReturn(FedAvg):
    def local(self, device, broadcast):
        super().local(device, broadcast)


class SendsAFloat(FedAvg):
    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        return type(update)({**update.tensors, "loss": 0.5}, update.weight, update.losses)


class SendsWeightsAlone(FedAvg):
    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        return type(update)(update.tensors["weights"], update.weight, update.losses)


class SendsText(FedAvg):
    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        return type(update)({**update.tensors, "label": np.array(["cat"])}, update.weight, update.losses)


class SendsWeightOfAList(FedAvg):
    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        return type(update)(update.tensors, [update.weight], update.losses)


class SendsTheTrainedWeights(FedAvg):
    """Sends what clients of other simulators send."""

    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        return type(update)({"weights": device.parameters()}, update.weight, update.losses)


class AveragesTheTrainedWeights(SendsTheTrainedWeights):
    """Also aggregates as these simulators do."""

    def aggregate(self, state, updates):
        return type(state)({"weights": updates.mean["weights"]})


class AveragesToNaN(FedAvg):
    def aggregate(self, state, updates):
        return type(state)({"weights": float("nan") * state.weights})


class KeepsALock(FedAvg):
    def __init__(self):
        super().__init__()
        self.lock = Lock()


class KeepsByNumber(FedAvg):
    def local(self, device, broadcast):
        device.state[7] = np.zeros(2, np.float32)
        return super().local(device, broadcast)


class KeepsAList(FedAvg):
    def local(self, device, broadcast):
        device.state["seen"] = [1, 2]
        return super().local(device, broadcast)


class AddsInPlace(FedAvg):
    def aggregate(self, state, updates):
        state.weights.vector += updates.mean["weights"].vector
        return state


class SetsTheEntry(FedAvg):
    """Averages in place, in the mapping that it receives."""

    def aggregate(self, state, updates):
        state.broadcast["weights"] = state.weights + updates.mean["weights"]
        return state


class KeepsForARound(Local):
    """Keeps its state after odd rounds only."""

    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        if device.round % 2 == 0:
            device.state.clear()
        return update


class ForgetsTheState(FedAvg):
    def aggregate(self, state, updates):
        super().aggregate(state, updates)


class ForgetsToKeepUpdates(FedAvg):
    def aggregate(self, state, updates):
        mean = sum(update.tensors["weights"] for update in updates.each.values()) / len(updates.each)
        return ServerState({"weights": state.weights + mean})


class NamesByDevice(FedAvg):
    """Keeps the server's tensors by ids, which a resumed run would read as text."""

    keeps_updates = True

    def aggregate(self, state, updates):
        own = {device: update.tensors["weights"] for device, update in updates.each.items()}
        return type(state)(super().aggregate(state, updates).broadcast, own)


class KeepsInItsClass(FedAvg):
    """Keeps in the class what a device and the server have computed."""

    known, history = {}, []

    def local(self, device, broadcast):
        self.known[device.id] = 1.0
        return super().local(device, broadcast)

    def aggregate(self, state, updates):
        self.history.append(1.0)
        return super().aggregate(state, updates)


class ForgetsToReturnShared(FedAvg):
    def shared(self, parameter):
        parameter.group != "head"  # noqa: B015


class BroadcastsText(FedAvg):
    def init(self, initial):
        state = super().init(initial)
        return type(state)({**state.broadcast, "note": "text"})


class RaisesOnce(Local):
    """Fails once, in `aggregate` of the third round, after devices have written their states."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def aggregate(self, state, updates):
        if not self._marker.exists() and any(self._marker.parent.rglob("*.3.safetensors")):
            self._marker.touch()
            raise RuntimeError("the coordinator dies")
        return super().aggregate(state, updates)


class KillsItsWorker(Local):
    """Kills its process at one device of the second round, a number of times."""

    def __init__(self, folder: Path, times: int) -> None:
        self._folder, self._times = folder, times

    def local(self, device, broadcast):
        done = len(list(self._folder.iterdir()))
        if (device.id, device.round) == (3, 2) and done < self._times:
            (self._folder / str(done)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().local(device, broadcast)


class DiesWhileLoading(FedAvg):
    """Ends the process that unpickles it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        os._exit(3)

    def __getstate__(self) -> dict[str, Any]:
        return {"any": 1}


class RecordsProcess(FedAvg):
    """Records the process that evaluated each device."""

    def deploy(self, device, broadcast):
        device.records["process"] = os.getpid()
        return super().deploy(device, broadcast)


class Counts(FedAvg):
    """Averages a plain array beside the weights, and keeps every update, with an array of a size of its own."""

    keeps_updates = True
    not_averaged = frozenset({"own"})

    def local(self, device, broadcast):
        update = super().local(device, broadcast)
        tensors = {**update.tensors, "ids": np.array([device.id, 1.0]), "own": np.zeros(device.id)}
        return type(update)(tensors, update.weight, update.losses)

    def aggregate(self, state, updates):
        state = super().aggregate(state, updates)
        devices = sorted(updates.each)
        sizes = np.array([updates.each[device].tensors["own"].size for device in devices])
        private = {"mean": updates.mean["ids"], "devices": np.array(devices), "sizes": sizes}
        assert "own" not in updates.mean
        return type(state)(state.broadcast, private)


class SendsItsNumber(FedAvg):
    """Sends each device the weights and a vector that only the server can compute."""

    def __init__(self):
        self.asked = []

    def init(self, initial):
        return ServerState(super().init(initial).broadcast, {"secret": np.array([3.0])})

    def message(self, state, device):
        self.asked.append(device)
        return {"weights": state.weights, "own": state.private["secret"] * device}

    def local(self, device, broadcast):
        assert broadcast["own"] == 3 * device.id
        assert not broadcast["own"].flags.writeable
        return super().local(device, broadcast)

    def deploy(self, device, broadcast):
        device.records["own"] = float(broadcast["own"][0])
        return super().deploy(device, broadcast)


class GetsWorse(Local):
    """Negates the weights of devices in the third round and keeps them from then on."""

    def local(self, device, broadcast):
        before = dict(device.state)
        update = super().local(device, broadcast)
        if device.round == 3:
            device.state["own"] = -1 * device.state["own"]
        if device.round > 3:
            device.state = before
        return update


class RecordsNode(FedAvg):
    """Records the node that evaluated each device, and whether TensorFlow is loaded there."""

    def deploy(self, device, broadcast):
        import ray

        device.records["node"] = int(ray.get_runtime_context().get_node_id()[:12], 16)
        device.records["tensorflow"] = "tensorflow" in sys.modules
        return super().deploy(device, broadcast)


class KillsANode(Local):
    """Kills a raylet at one device of the second round."""

    def __init__(self, process: int) -> None:
        self._process = process

    def local(self, device, broadcast):
        if (device.id, device.round) == (3, 2):
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
        return super().local(device, broadcast)


class Fails(FedPer):
    """Fails on some devices in some rounds, in training or in deployment."""

    def __init__(self, does: str, devices=(2,), rounds=(2,), *, deploys: bool = False) -> None:
        self._does, self._devices, self._rounds, self._deploys = does, devices, rounds, deploys

    def local(self, device, broadcast):
        if not self._deploys and self._fails_now(device):
            return getattr(self, self._does)(super().local(device, broadcast))
        return super().local(device, broadcast)

    def deploy(self, device, broadcast):
        weights = super().deploy(device, broadcast)
        return getattr(self, self._does)(weights) if self._deploys and self._fails_now(device) else weights

    def _fails_now(self, device):
        return device.id in self._devices and device.round in self._rounds

    def weighs_nothing(self, update):
        return type(update)(update.tensors, 0, update.losses)

    def explodes(self, update):
        added = {"v": np.array([3e6, 4e6], np.float32)}
        return type(update)({**update.tensors, **added}, update.weight, update.losses)

    def sends_nan(self, update):
        return type(update)({"v": np.array([np.nan])}, update.weight, update.losses)

    def hangs(self, update):
        try:
            time.sleep(1000)
        except Exception:  # swallows all errors
            return update

    def hangs_in_native_code(self, update):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(1000)

    def diverges(self, update):
        return Weights(update.layout, np.full_like(update.vector, np.nan))

    def aborts(self, update):
        os.abort()
