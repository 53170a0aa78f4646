"""The contract of an attack; by default hostile devices behave like all others.

Hostile devices (`fleet.hostile`) run `Attack.local` in place of `Strategy.local`, so that an attack works under every
strategy. A new attack overrides what differs: the examples that they train on, what they send, or all of `local`.
"""

from dataclasses import replace
from typing import Any

from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.misspelt import warn_of_misspelt
from odt_sim.model.trainable import TrainableModel
from odt_sim.strategies.base import Strategy, Tensors, Update
from odt_sim.user_code import name_of


class Attack:
    """What hostile devices do; by default nothing hostile, which is the reference on the same honest devices."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Check that no member is misspelt."""
        super().__init_subclass__(**options)
        warn_of_misspelt(cls, Attack)

    @property
    def name(self) -> str:
        """The name in records and reports: the module's for a shipped attack, the class's for any other."""
        return "none" if type(self) is Attack else name_of(self, __package__)

    def check(self, model: TrainableModel) -> None:
        """Check, before a run, that the attack applies to the model.

        Raises:
            ConfigurationError: It does not.
        """

    def local(self, strategy: Strategy, device: Device, broadcast: Tensors) -> Update:
        """Return the update of a hostile device: what the strategy makes of `poisoned` examples, changed by `sent`.

        Args:
            strategy: The strategy of the run.
            device: The device.
            broadcast: What it received; read-only.
        """
        device.train_examples = self.poisoned(device, device.train_examples)
        update = strategy.local(device, broadcast)
        return replace(update, tensors=self.sent(device, update.tensors)) if isinstance(update, Update) else update

    def poisoned(self, device: Device, examples: Examples) -> Examples:
        """Return the examples that a hostile device trains on, as many as it has."""
        return examples

    def sent(self, device: Device, tensors: Tensors) -> Tensors:
        """Return what a hostile device sends in place of its update's tensors."""
        return tensors

    def triggered(self, examples: Examples) -> Examples | None:
        """Return test examples of an honest device as the attacker would change them, with the labels that it wants.

        The share that a model answers so is the attack's success; None for an attack without such a target.
        """
        return None
