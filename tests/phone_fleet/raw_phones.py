"""Phones without a browser: WebSocket clients that send valid or invalid messages."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from odt_sim import Fleet, Simulation, Strategy, TrainableModel, TrainingPlan
from odt_sim.data import digits, federate, iid
from odt_sim.data.store.columns import Array
from odt_sim.phone.backend import PhonesBackend
from odt_sim.phone.frames import Message, decode, encode
from odt_sim.strategies import FedAvg

SECONDS = 120.0  # timeout for short waits; the machine may be busy

Answer = Callable[["RawPhone", Message], bytes | None]


def wait(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    until = monotonic() + seconds
    while not (found := condition()):
        assert monotonic() < until, "out of time"
        sleep(0.01)
    return found


class Running:
    """A run in a thread, with phones as its devices."""

    def __init__(
        self,
        model: TrainableModel,
        directory: Path,
        *,
        devices: int = 2,
        rounds: int = 2,
        strategy: Strategy | None = None,
        resume: bool = False,
        fleet: Fleet | None = None,
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.backend = PhonesBackend(**{"host": "127.0.0.1", "port": 0, **settings})
        data = federate(digits(), iid, devices, 0)
        plan, strategy = TrainingPlan(steps=2), strategy or FedAvg()
        simulation = Simulation(
            model, data, strategy, rounds=rounds, directory=directory, plan=plan, backend=self.backend, fleet=fleet
        )
        self._outcome: list[Any] = []
        self._thread = Thread(target=self._run, args=(simulation, resume), daemon=True)
        self._thread.start()

    def _run(self, simulation: Simulation, resume: bool) -> None:
        try:
            self._outcome.append(simulation.run(resume=resume, observers=[]))
        except BaseException as error:
            self._outcome.append(error)

    @property
    def address(self) -> str:
        wait(lambda: self.backend.address or self._outcome)
        assert self.backend.address, self._outcome
        return self.backend.address

    def finish(self) -> Any:
        self._thread.join(SECONDS)
        [outcome] = self._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.directory / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class RawPhone:
    """A phone that returns the received weights without training."""

    def __init__(self, address: str, name: str = "a", answer: Answer | None = None, **ready: Any) -> None:
        """Join a run, and answer in a thread.

        Args:
            address: The page's address.
            name: A letter; phones of the same name are the same phone.
            answer: Called with this phone and a request; returns the answer, None for the usual one, or `b""` for none.
            ready: Fields of the message that completes the joining.
        """
        self.socket = opened(address)
        self.socket.send(encode(Message({"do": "join", "phone": name * 32})))
        self.welcome = decode(self.received())
        self.answer = answer or (lambda phone, message: None)
        self.ended, self.again = "", False
        self.weights: Array = np.zeros(0, np.float32)
        own, sent = {"train": 40, "validation": 10, "test": 10}, self.welcome.tensors
        self.counts = {split: len(sent[f"{split}.x"]) if sent else count for split, count in own.items()}
        fingerprint = self.welcome.header.get("fingerprint")
        if self.welcome.header["do"] == "welcome":
            self.socket.send(encode(Message({"do": "ready", "fingerprint": fingerprint, **self.counts, **ready})))
        self.thread = Thread(target=self._serve, daemon=True)
        self.thread.start()

    def received(self) -> bytes:
        frame = self.socket.recv(SECONDS)
        assert isinstance(frame, bytes)
        return frame

    def _serve(self) -> None:
        with suppress(ConnectionClosed):  # the server refused a message
            self._answer_all()

    def _answer_all(self) -> None:
        self._hear(self.welcome)
        for frame in self.socket:
            assert isinstance(frame, bytes)
            message = decode(frame)
            self._hear(message)
            if "id" in message.header:
                own = self.answer(self, message)
                sent = encode(self.usual(message)) if own is None else own
                if sent:
                    self.socket.send(sent)

    def _hear(self, message: Message) -> None:
        if message.header["do"] == "end":
            self.ended, self.again = message.header["sentence"], message.header["again"]

    def usual(self, message: Message) -> Message:
        header: Mapping[str, Any] = {"do": "done", "id": message.header["id"]}
        match message.header["do"]:
            case "write":
                self.weights = message.tensors["weights"]
            case "read":
                return Message(header, {"weights": self.weights})
            case "train":
                return Message(header, {"losses": np.ones(len(message.tensors["sizes"]), np.float32)})
            case "evaluate":
                return Message({**header, "figures": self.figures(message), "calls": 1})
        return Message(header)

    def figures(self, message: Message) -> dict[str, Any]:
        split, given = message.header["split"], message.tensors
        return {"loss": 1.0, "accuracy": 0.5, "examples": len(given["x"]) if given else self.counts[split]}

    def close(self) -> None:
        self.socket.close()
        self.thread.join(5)


def opened(address: str, **options: Any) -> ClientConnection:
    url, waits = f"{address.replace('http', 'ws', 1)}device", {"open_timeout": SECONDS, "ping_timeout": SECONDS}
    return connect(url, proxy=None, max_size=None, **waits, **options).__enter__()


def reply(message: Message, tensors: Mapping[str, Array]) -> bytes:
    return encode(Message({"do": "done", "id": message.header["id"]}, tensors))
