"""WebSocket with which a phone joins a run, and the route of the model."""

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import TimeoutError as NotSent
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from odt_sim.data.store.columns import Array
from odt_sim.errors import DataError
from odt_sim.metrics.tasks import model_metrics
from odt_sim.phone.device import tensors_of
from odt_sim.phone.frames import Message, decode, encode
from odt_sim.phone.phones import SILENCE, Examples, Phone, Phones
from odt_sim.phone.routes import described, shown
from odt_sim.simulation.executors.job import Job

SECRET = re.compile("[0-9a-f]{32}")
"""What identifies a phone when it returns."""

READY_SECONDS = 120.0
"""The time from a page's connection until it has loaded the model; until then it holds a device's place."""

MOST_EXAMPLES = 1 << 24  # maximum per split of a phone, since the run keeps a position for each example


@dataclass(frozen=True)
class Joining:
    """Routes with which phones join a run.

    Attributes:
        job: The run's job.
        phones: The phones of the run.
        slices: Whether a phone gets its device's part of the run's data; otherwise it uses its own examples.
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
        try:
            async with asyncio.timeout(READY_SECONDS):
                phone = await self._joined(websocket)
        except TimeoutError as error:
            raise DataError(f"This phone was not ready within {READY_SECONDS:g} s; reload the page.") from error
        self.phones.connect(phone)
        try:
            while True:
                await _pass_on(websocket, phone)
        finally:
            self.phones.disconnect(phone)

    async def _joined(self, websocket: WebSocket) -> Phone:
        """Return the phone of a page that identifies itself and gets ready."""
        joined = decode(await _frame(websocket))
        secret = joined.header.get("phone")
        if joined.header.get("do") != "join" or not (isinstance(secret, str) and SECRET.fullmatch(secret)):
            raise DataError("The page did not identify this phone; reload it.")
        with self.phones.joining(secret) as device:
            return await self._prepared(websocket, device)

    async def _prepared(self, websocket: WebSocket, device: int) -> Phone:
        """Assign a device to a page, and return the phone when it is ready."""
        await websocket.send_bytes(encode(Message({"do": "welcome", **self._welcome(device)}, self._slices(device))))
        ready = decode(await _frame(websocket)).header
        if ready.get("fingerprint") != self.job.model.fingerprint:
            raise DataError("This page has loaded a different model than the run; reload it.")
        examples = _examples(ready)
        if self.slices and examples != Examples(*(len(rows) for rows in self.job.data.parts(device))):
            raise DataError("This page has a different number of examples than the run sent; reload it.")
        return _phone(websocket, device, examples)

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
    """Pass the next frame to a phone; an invalid frame ends its participation."""
    try:
        phone.receive(await _frame(websocket))
    except DataError as error:
        phone.leave("sent an invalid message", str(error))  # the connection ends when the page closes it


async def _frame(websocket: WebSocket) -> bytes:
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000), message.get("reason"))
    frame = message.get("bytes")
    if frame is None:
        raise DataError("text message: expected a binary frame of odt_sim; reload the page")
    return bytes(frame)


def _phone(websocket: WebSocket, device: int, examples: Examples) -> Phone:
    """Return a phone that is safe to use from other threads."""
    loop = asyncio.get_running_loop()

    def send(frame: bytes) -> None:
        sent = asyncio.run_coroutine_threadsafe(websocket.send_bytes(frame), loop)
        try:
            sent.result(SILENCE)
        except NotSent:
            phone.leave(f"accepted nothing for {SILENCE:g} s", again=True)
        except (RuntimeError, WebSocketDisconnect):
            phone.leave("left")

    def end(sentence: str, again: bool) -> None:
        asyncio.run_coroutine_threadsafe(_end(websocket, sentence, again=again), loop)

    phone = Phone(device, examples, send, end)  # to which `send` refers
    return phone


async def _end(websocket: WebSocket, sentence: str, *, again: bool = False, failed: bool = False) -> None:
    """Close a connection, if it is still open, with a sentence for the page to show."""
    try:
        header = {"do": "end", "sentence": sentence, "again": again, "failed": failed}
        await websocket.send_bytes(encode(Message(header)))
        await websocket.close(1000)
    except (RuntimeError, WebSocketDisconnect):  # the connection has already ended
        pass


def _examples(ready: Mapping[str, Any]) -> Examples:
    """Return the numbers of examples that a phone reports.

    Raises:
        DataError: The numbers are invalid or too small.
    """
    counts = [ready.get(split) for split in ("train", "validation", "test")]
    if not all(type(count) is int and 0 <= count <= MOST_EXAMPLES for count in counts):
        raise DataError("The page did not send its number of examples; reload it.")
    examples = Examples(*(int(str(count)) for count in counts))
    if not (examples.train and examples.test):
        raise DataError(
            f"A device needs at least 1 example to train and 1 to test, found {examples.train} and {examples.test}; "
            "add examples."
        )
    return examples
