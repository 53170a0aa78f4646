"""Nodes of a Flower federation in this process, for tests of the messages between server and nodes."""

from collections.abc import Iterable, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # Flower sets them in processes that it starts


class Nodes(Grid):
    """A grid that calls the apps of its nodes, each with its own context."""

    def __init__(self, apps: Sequence[ClientApp], partitions: Sequence[int] | None = None) -> None:
        self._apps = dict(enumerate(apps, start=100))
        self._contexts = {
            node: Context(1, node, {"partition-id": id}, RecordDict(), {})
            for node, id in zip(self._apps, partitions or range(len(apps)), strict=True)
        }
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        return list(self._apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        node, id = message.metadata.dst_node_id, message.object_id
        message.metadata.__dict__["_message_id"] = id
        try:
            self._replies[id] = self._apps[node](message, self._contexts[node])
        except Exception as error:  # as Flower does
            self._replies[id] = Message(Error(0, str(error)), reply_to=message)
        return id

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(id) for id in message_ids if id in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError
