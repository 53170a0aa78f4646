"""Phones of a run: their assignment to devices, and requests to connected phones."""

import hashlib
import json
import queue
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition
from typing import Any, NamedTuple

from odt_sim._support.text import counted, one_line
from odt_sim.data.store.columns import Array
from odt_sim.errors import CheckpointError, DataError, InvocationError
from odt_sim.persistence.storage import Storage
from odt_sim.phone.frames import Message, decode, encode
from odt_sim.simulation.run.exclusion import AWAY
from odt_sim.simulation.run.time_limit import OutOfTime

SILENCE = 60.0
"""Seconds without a message after which a working phone counts as asleep; it reports progress about every second."""

RECORD = "phones.json"


class PhoneError(InvocationError):
    """Failure of a phone to do a device's work; the message is the reason in the records."""


class Examples(NamedTuple):
    """Numbers of a phone's examples."""

    train: int
    validation: int
    test: int


class Phone:
    """Connection of a phone. A request waits for its reply, and fails as soon as the phone disconnects."""

    def __init__(
        self, device: int, examples: Examples, send: Callable[[bytes], None], end: Callable[[str, bool], None]
    ) -> None:
        """Set the connection.

        Args:
            device: The phone's number in the fleet.
            examples: The numbers of its examples.
            send: A function that sends a frame.
            end: A function that ends the connection, given a sentence for the page and whether the page should
                reconnect.
        """
        self.device, self.examples = device, examples
        self._send, self._end = send, end
        self._replies: queue.SimpleQueue[Message | PhoneError] = queue.SimpleQueue()
        self._asked = 0
        self._lost: PhoneError | None = None

    def ask(self, header: Mapping[str, Any], tensors: Mapping[str, Array], until: float | None) -> Message:
        """Send a request and return the reply.

        Args:
            header: The request's header.
            tensors: Its tensors.
            until: The deadline, as a time of `time.monotonic`; None for no deadline.

        Raises:
            PhoneError: The phone is away, or the request failed on it.
            OutOfTime: The reply did not arrive in time.
        """
        if self._lost:
            raise self._lost
        self._asked += 1
        self._send(encode(Message({**header, "id": self._asked}, tensors)))
        while True:
            reply = self._next(until)
            if isinstance(reply, PhoneError):
                raise reply
            if reply.header.get("id") != self._asked or reply.header.get("do") == "progress":
                continue
            if reply.header.get("do") == "failed":
                raise PhoneError(f"failed in LiteRT.js: {short_line(reply.header.get('error'))}")
            return reply

    def _next(self, until: float | None) -> Message | PhoneError:
        left = SILENCE if until is None else until - time.monotonic()
        try:
            return self._replies.get(timeout=max(0.0, min(left, SILENCE)))
        except queue.Empty:
            if left < SILENCE:
                raise OutOfTime from None
            self.leave(f"sent nothing for {SILENCE:g} s", again=True)
            raise self._lost or PhoneError(AWAY) from None

    def receive(self, frame: bytes) -> None:
        """Handle a frame that the phone sent.

        Raises:
            DataError: The frame is invalid.
        """
        message = decode(frame)
        if message.header.get("id") == self._asked:  # other replies are late
            self._replies.put(message)

    def leave(self, why: str, sentence: str | None = None, *, again: bool = False) -> None:
        """End the connection; in-flight and later requests fail.

        Args:
            why: What happened, such as `left`.
            sentence: The sentence that the page shows; None for one with `why`.
            again: Whether the page should reconnect.
        """
        if self._lost is None:
            self._lost = PhoneError(f"{AWAY}: {why}")
            self._replies.put(self._lost)
            self._end(sentence or f"This phone {why}.", again)


class Phones:
    """Phones of a run by device.

    A new phone gets the lowest free number. If a phone leaves before the first round, its number becomes free again.
    From the first round on, phones keep their numbers when they return, even after the run is resumed. Only digests of
    the phones' secrets are stored.

    Attributes:
        token: The secret in the address; it stays the same when the run is resumed.
    """

    def __init__(self, devices: int, storage: Storage) -> None:
        """Read the phones of a resumed run.

        Args:
            devices: The number of devices of the fleet.
            storage: The storage of the run's checkpoint.

        Raises:
            CheckpointError: The record is damaged.
        """
        self._devices, self._storage = devices, storage
        self.token, self._numbers = _recorded(storage)
        self._begun = bool(self._numbers)  # the record contains numbers from the first round on
        self._joining: list[tuple[str, int]] = []  # digest and device of each page that is not ready yet
        self._connected: dict[int, Phone] = {}
        self._examples: dict[int, Examples] = {}
        self._changed = Condition()

    @contextmanager
    def joining(self, secret: str) -> Iterator[int]:
        """Reserve a phone's device while its page prepares; a new phone keeps it unless an exception ends the context.

        Args:
            secret: The secret that identifies the phone when it returns.

        Yields:
            The device.

        Raises:
            DataError: All devices of the fleet are taken.
            FileError: The record cannot be written.
        """
        digest = hashlib.sha256(secret.encode()).hexdigest()
        with self._changed:
            device = self._device_of(digest)
            self._joining.append((digest, device))
        try:
            yield device
            with self._changed:
                if digest not in self._numbers:
                    self._numbers[digest] = device
                    if self._begun:
                        self.record()
        finally:
            with self._changed:
                self._joining.remove((digest, device))

    def _device_of(self, digest: str) -> int:
        held = dict(self._joining) | self._numbers
        if digest in held:
            return held[digest]
        free = sorted(set(range(self._devices)) - set(held.values()))
        if not free:
            raise DataError(
                f"The run has {counted(self._devices, 'device')}, and other phones occupy all of them; open the page in the "
                "browser that took part before."
            )
        return free[0]

    def begin(self) -> None:
        """Keep the phones' numbers from now on, even if phones leave.

        Raises:
            FileError: The record cannot be written.
        """
        with self._changed:
            self._begun = True
            self.record()

    def record(self) -> None:
        """Write the record that a resumed run needs.

        Raises:
            FileError: It cannot be written.
        """
        self._storage.replace(RECORD, json.dumps({"token": self.token, "devices": self._numbers}).encode(), secret=True)

    def connect(self, phone: Phone) -> None:
        """Add a phone, and end its earlier connection, if any."""
        with self._changed:
            before = self._connected.get(phone.device)
            self._connected[phone.device] = phone
            self._examples[phone.device] = phone.examples
            self._changed.notify_all()
        if before:
            before.leave("left", "This device was opened in another tab, which now takes part instead.")

    def disconnect(self, phone: Phone) -> None:
        """Remove a phone whose connection has ended; before the first round, its number is free again."""
        phone.leave("left")
        with self._changed:
            if self._connected.get(phone.device) is phone:
                del self._connected[phone.device]
                if not self._begun:
                    self._numbers = {key: number for key, number in self._numbers.items() if number != phone.device}
                    del self._examples[phone.device]
            self._changed.notify_all()

    def connected(self, device: int) -> Phone | None:
        """Return the phone of a device; None if it is not connected."""
        with self._changed:
            return self._connected.get(device)

    def examples(self, device: int) -> Examples | None:
        """Return the numbers of a device's examples at its last connection; None if it never connected."""
        with self._changed:
            return self._examples.get(device)

    def present(self, devices: Collection[int]) -> int:
        """Return the number of the given devices that are connected."""
        with self._changed:
            return len(self._connected.keys() & set(devices))

    def wait_for(self, count: int, devices: Collection[int], waiting: Callable[[int], None]) -> None:
        """Wait until at least `count` of the given devices are connected.

        Args:
            count: The number of devices to wait for.
            devices: The devices that count.
            waiting: A function called with the number of connected devices, at first and whenever it changes.
        """
        told = None
        while (here := self.present(devices)) < count:
            if here != told:
                waiting(here)
                told = here
            with self._changed:
                self._changed.wait(0.2)  # a short timeout, so that Ctrl-C is handled

    def end(self, sentence: str, *, again: bool) -> None:
        """End all connections with a sentence for the pages; `again` lets them reconnect."""
        with self._changed:
            phones = list(self._connected.values())
        for phone in phones:
            phone.leave("left", sentence, again=again)


def _recorded(storage: Storage) -> tuple[str, dict[str, int]]:
    if RECORD not in storage.names():
        return secrets.token_urlsafe(12), {}
    try:
        recorded = json.loads(storage.read(RECORD))
        return str(recorded["token"]), {str(digest): int(number) for digest, number in recorded["devices"].items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise CheckpointError(
            f"{storage.where(RECORD)}: damaged ({error}); restore it from a backup, or start a new run"
        ) from error


def short_line(text: object) -> str:
    """Return text from a phone as one short line, without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() else "\ufffd" for c in one_line(text))[:200] or "no reason given"
