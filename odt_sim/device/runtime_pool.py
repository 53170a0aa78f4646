"""A pool of interpreters that devices borrow, and the state that a device keeps while it has none."""

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from odt_sim.data.store.columns import Array
from odt_sim.device.embedding_cache import EmbeddingCache
from odt_sim.device.engines import LITERT, StartEngine
from odt_sim.device.runtime import Runtime
from odt_sim.model.editing.head_file import head_file
from odt_sim.model.editing.repeated import EngineFile, own_file, repeated
from odt_sim.model.reading.flatbuffer import SETTERS
from odt_sim.model.trainable import TrainableModel
from odt_sim.model.weights import Layout, Weights

STATE = frozenset(SETTERS.values())
"""All that a signature may change."""


class RuntimePool:
    """One interpreter, lent to the device that ran most recently.

    Lending changes no result: a device that loses the interpreter keeps its state on the host.

    Attributes:
        model: The model that the interpreter runs.
        embeddings: Embeddings of devices' examples, shared by the devices of this pool.
    """

    def __init__(
        self,
        model: TrainableModel,
        start: StartEngine = LITERT,
        *,
        edits: bool = True,
        embeddings: EmbeddingCache | None = None,
    ) -> None:
        """Create an empty pool; the interpreter starts on demand.

        Args:
            model: The model.
            start: Starts an engine, by default LiteRT's interpreter.
            edits: Whether the engine may run files derived from the model's own, see `odt_sim.model.editing.repeated` and
                `odt_sim.model.editing.head_file`.
            embeddings: The cache to share with other pools; a new one by default.
        """
        self.model = model
        self._start = start
        self._edits = edits
        self.embeddings = embeddings or EmbeddingCache()
        self._lent: ModelState | None = None  # the state in the runtime
        self._rates: dict[int, float] = {}

    @cached_property
    def first(self) -> Runtime:
        """The runtime, which also provides the initial weights and slots."""
        return Runtime(self.model, self._start, self.file())

    @cached_property
    def head(self) -> "RuntimePool":
        """The pool whose interpreter runs the head's file; this pool if there is no such file."""
        has_flex = any(op.startswith("Flex") for ops in self.model.operators.values() for op in ops)
        file = head_file(self.model) if self._edits and not has_flex else None
        if file is None:
            return self
        pool = RuntimePool(self.model, self._start)
        pool.first = Runtime(self.model, self._start, file, whole=self.first)
        return pool

    def scheduled_rate(self, step: int) -> float:
        """Return the learning rate of a step from the model's signature `schedule`."""
        if step not in self._rates:
            self._rates[step] = float(self.first.call("schedule", step=np.int32(step))["learning_rate"].item())
        return self._rates[step]

    def acquire(self, state: "ModelState") -> Runtime:
        """Return the runtime with a device's state; the state of the previous device moves to the host."""
        if self._lent is not state:
            before, self._lent = self._lent, None
            if before:
                before.read_from(self.first)
            state.write_to(self.first)
            self._lent = state
        return self.first

    def release(self, state: "ModelState") -> None:
        """Take the runtime from a device without reading the state back."""
        if self._lent is state:
            self._lent = None

    def file(self) -> EngineFile:
        """Return the file to run, built once for this process and its later forks."""
        return repeated(self.model) if self._edits else own_file(self.model)


class ModelState:
    """A device's weights and optimizer slots, on the host or in a borrowed interpreter."""

    def __init__(self, pool: RuntimePool, weights: Weights, slots: Sequence[Array]) -> None:
        """Keep the state on the host until the device runs."""
        self._pool = self._lender = pool  # the lender is the pool that the device last borrowed from
        self._weights, self._slots = weights, slots
        self._weights_current = self._slots_current = True  # whether the host's copies are up to date
        self._head: Weights | None = None  # the head's weights, if those in `_weights` are outdated
        self._body: Weights | None = weights

    @property
    def weights(self) -> Weights:
        """All weights, read-only."""
        self._fetch_weights()
        if self._head is not None:
            self._weights, self._head = self._weights.replace(self._head), None
            self._weights.vector.flags.writeable = False
        return self._weights

    def select(self, layout: Layout) -> Weights:
        """Return a copy of some weights; the head's are copied without the others."""
        self._fetch_weights()
        of_head = self._head is not None and _covers(self._head.layout, layout)
        return (self._head if self._head is not None and of_head else self.weights).select(layout)

    @property
    def body(self) -> Weights:
        """Weights with this state's parameters outside the head; the same object until one of these changes."""
        if self._body is None:
            self._body = self.weights
        return self._body

    @property
    def slots(self) -> Sequence[Array]:
        """The optimizer's slots; do not write to them."""
        if not self._slots_current:
            self._read_slots(self._lender.acquire(self))
        return self._slots

    def replace(self, weights: Weights, slots: Sequence[Array], *, same_body: bool = False) -> None:
        """Set weights and slots; an interpreter receives them when the device next runs.

        Args:
            weights: All weights.
            slots: All slots.
            same_body: Whether no weight outside the head differs from this state's.
        """
        weights.vector.flags.writeable = False
        self._body = self.body if same_body else weights
        self._weights, self._head, self._slots = weights, None, slots
        self._weights_current = self._slots_current = True
        self.release()

    def replace_head(self, weights: Weights) -> None:
        """Set some of the head's weights; everything else stays unchanged."""
        _ = self.slots  # reads changes back
        self._fetch_weights()
        if self._head is not None and not _covers(weights.layout, self._head.layout):
            _ = self.weights  # keeps the other changes
        self._head = weights.select(weights.layout)
        self._head.vector.flags.writeable = False
        self.release()

    def runtime(self, *, changes: Collection[str] = (), head: bool = False) -> Runtime:
        """Return a runtime with this state.

        Args:
            changes: What the caller changes: `weights`, `slots`, both or none.
            head: Whether the caller runs `head_train` or `head_infer`, for which the head is enough.
        """
        lender = self._pool.head if head else self._pool
        if lender is not self._lender:
            self._fetch_weights()
            _ = self.slots
            self.release()
            self._lender = lender
        runtime = lender.acquire(self)
        if "weights" in changes:
            self._weights_current = False
            self._body = self._body if head else None
        if "slots" in changes:
            self._slots_current = False
        return runtime

    def release(self) -> None:
        """Return the runtime to the pool; changes that were not read back are lost."""
        self._lender.release(self)

    def write_to(self, runtime: Runtime) -> None:
        """Write the state into a runtime."""
        enough = self._head is not None and self._head.layout == runtime.file.layout
        runtime.write(self._head if self._head is not None and enough else self.weights)
        runtime.write_slots(self._slots)

    def read_from(self, runtime: Runtime) -> None:
        """Copy changes from the runtime before it is lent to another device."""
        if not self._weights_current:
            self._read_weights(runtime)
        if not self._slots_current:
            self._read_slots(runtime)

    def _fetch_weights(self) -> None:
        if not self._weights_current:
            self._read_weights(self._lender.acquire(self))

    def _read_weights(self, runtime: Runtime) -> None:
        if runtime.file.layout == self._weights.layout:
            self._weights, self._head = runtime.read(), None
        else:
            self._head = runtime.read()
        self._weights_current = True

    def _read_slots(self, runtime: Runtime) -> None:
        slots = dict(enumerate(self._slots)) | dict(zip(runtime.file.slots, runtime.read_slots(), strict=True))
        self._slots, self._slots_current = list(slots.values()), True


def _covers(layout: Layout, other: Layout) -> bool:
    return layout.slices.keys() >= other.slices.keys()
