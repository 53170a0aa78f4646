"""The WebSocket by which a phone joins a run, and the model that it loads."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import TimeoutError as NotSent
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from odt_sim.errors import DataError
from odt_sim.metrics.tasks import model_metrics
from odt_sim.phone.description import described, shown
from odt_sim.phone.device import tensors_of
from odt_sim.phone.frames import Array, Message, decode, encode
from odt_sim.phone.phones import SILENCE, Examples, Phone, Phones
from odt_sim.simulation.job import Job

SECRET = 32  # hexadecimal digits by which a phone is known again
MOST_EXAMPLES = 1 << 24  # of a phone in one split: the run keeps a position for each


@dataclass(frozen=True)
class Joining:
    """What phones need to join a run.

    Attributes:
        job: The run's job.
        phones: The phones of the run.
        slices: Whether a phone gets the device's part of the run's data; otherwise it has examples of its own.
    """

    job: Job
    phones: Phones
    slices: bool

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the socket and of the model."""
        return [WebSocketRoute("/device", self._connect), Route("/model.tflite", self._model)]

    async def _model(self, request: Request) -> Response:
        return Response(self.job.model.content, media_type="application/octet-stream")

    async def _connect(self, websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            await self._take_part(websocket)
        except DataError as error:
            await _end(websocket, str(error), failed=True)
        except WebSocketDisconnect:
            pass

    async def _take_part(self, websocket: WebSocket) -> None:
        joined = decode(await _frame(websocket))
        secret = joined.header.get("phone")
        if joined.header.get("do") != "join" or not (isinstance(secret, str) and len(secret) == SECRET):
            raise DataError("The page did not say which phone this is; reload it.")
        with self.phones.joining(secret) as device:
            phone = await self._prepared(websocket, device)
        self.phones.connect(phone)
        try:
            while True:
                await _pass_on(websocket, phone)
        finally:
            self.phones.disconnect(phone)

    async def _prepared(self, websocket: WebSocket, device: int) -> Phone:
        """Tell a page which device it is, and return the phone when it is ready."""
        await websocket.send_bytes(encode(Message({"do": "welcome", **self._welcome(device)}, self._slices(device))))
        ready = decode(await _frame(websocket)).header
        if ready.get("fingerprint") != self.job.model.fingerprint:
            raise DataError("This page has loaded another model than the run's; reload it.")
        return _phone(websocket, device, self._counted(ready, device))

    def _counted(self, ready: Mapping[str, Any], device: int) -> Examples:
        """Return how many examples a phone has, which are those that the run sent, if it sent any."""
        counted = _examples(ready)
        if self.slices and counted != Examples(*(len(rows) for rows in self.job.data.parts(device))):
            raise DataError("This page has another number of examples than the run sent; reload it.")
        return counted

    def _welcome(self, device: int) -> Mapping[str, Any]:
        job, model = self.job, self.job.model
        return {
            "device": device,
            "devices": job.data.devices,
            "strategy": job.strategy.name,
            "name": model.name,
            "fingerprint": model.fingerprint,
            "metric": shown(model_metrics(model)[0]),
            "batch_size": model.batch_size,
            **described(model),
            "trainable": [p.role == "trainable" for p in model.parameters],
            "slices": self.slices,
        }

    def _slices(self, device: int) -> dict[str, Array]:
        if not self.slices:
            return {}
        data = self.job.data
        sent: dict[str, Array] = {}
        for split, rows in zip(("train", "validation", "test"), data.parts(device), strict=True):
            tensors = tensors_of(self.job.model, data.x[rows], data.y[rows])
            sent |= {f"{split}.{name}": array for name, array in tensors.items()}
        return sent


async def _pass_on(websocket: WebSocket, phone: Phone) -> None:
    """Give the next frame to a phone; an invalid one ends its part."""
    try:
        phone.receive(await _frame(websocket))
    except DataError as error:
        phone.leave("sent an invalid message", str(error))  # the connection ends when the page has closed it, too


async def _frame(websocket: WebSocket) -> bytes:
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000), message.get("reason"))
    frame = message.get("bytes")
    if frame is None:
        raise DataError("message of text: expected a binary frame of odt_sim; reload the page")
    return bytes(frame)


def _phone(websocket: WebSocket, device: int, examples: Examples) -> Phone:
    """Return a phone that other threads may use."""
    loop = asyncio.get_running_loop()

    def send(frame: bytes) -> None:
        sent = asyncio.run_coroutine_threadsafe(websocket.send_bytes(frame), loop)
        try:
            sent.result(SILENCE)
        except NotSent:
            phone.leave(f"took nothing for {SILENCE:g} s", again=True)
        except (RuntimeError, WebSocketDisconnect):
            phone.leave("left")

    def end(sentence: str, again: bool) -> None:
        asyncio.run_coroutine_threadsafe(_end(websocket, sentence, again=again), loop)

    phone = Phone(device, examples, send, end)
    return phone


async def _end(websocket: WebSocket, sentence: str, *, again: bool = False, failed: bool = False) -> None:
    """Close a connection with a sentence for the page, if it is still open."""
    try:
        header = {"do": "end", "sentence": sentence, "again": again, "failed": failed}
        await websocket.send_bytes(encode(Message(header)))
        await websocket.close(1000)
    except (RuntimeError, WebSocketDisconnect):  # it has ended already
        pass


def _examples(ready: Mapping[str, Any]) -> Examples:
    """Return how many examples a phone says that it has.

    Raises:
        DataError: It has too few.
    """
    counts = [ready.get(split) for split in ("train", "validation", "test")]
    if not all(type(count) is int and 0 <= count <= MOST_EXAMPLES for count in counts):
        raise DataError("The page did not say how many examples it has; reload it.")
    examples = Examples(*(int(str(count)) for count in counts))
    if not (examples.train and examples.test):
        raise DataError(
            f"A device needs at least 1 example to train and 1 to test, found {examples.train} and {examples.test}; "
            "add examples."
        )
    return examples
