"""Base class of attacks; by default, hostile devices behave like all others.

Hostile devices (`fleet.hostile`) run `Attack.local` instead of `Strategy.local`, so an attack works under every
strategy. A new attack overrides only what differs: the examples that the devices train on, what they send, or all of
`local`.
"""

from dataclasses import replace
from typing import Any

from odt_sim._support.checks import warn_of_misspelt
from odt_sim._support.user_code import name_of, repr_of
from odt_sim.device.device import Device
from odt_sim.device.examples import Examples
from odt_sim.hyperparameters import Configured
from odt_sim.model.trainable import TrainableModel
from odt_sim.strategies.base import Strategy, Tensors, Update


class Attack(Configured):
    """Behaviour of hostile devices; the default is honest, which gives the reference on the same honest devices."""

    _group = "attack"

    def __init_subclass__(cls, **options: Any) -> None:
        """Warn about misspelt members."""
        super().__init_subclass__(**options)
        warn_of_misspelt(cls, Attack, cls.hyperparameters)

    def __repr__(self) -> str:
        """Return the class with its settings, in one line."""
        return repr_of(self)

    @property
    def name(self) -> str:
        """The name in records and reports: the module name of a shipped attack, the class name of any other."""
        return "none" if type(self) is Attack else name_of(self, __package__)

    def check(self, model: TrainableModel) -> None:
        """Check before a run that the attack applies to the model.

        Raises:
            ConfigurationError: The attack does not apply to the model.
        """

    def local(self, strategy: Strategy, device: Device, broadcast: Tensors) -> Update:
        """Return the update of a hostile device: the strategy's update on `poisoned` examples, changed by `sent`.

        Args:
            strategy: The strategy of the run.
            device: The device.
            broadcast: The received tensors; read-only.
        """
        device.train_examples = poisoned = self.poisoned(device, device.train_examples)
        if not isinstance(poisoned, Examples):
            raise TypeError(f"poisoned returned {type(poisoned).__name__}, expected Examples")
        update = strategy.local(device, broadcast)
        return replace(update, tensors=self.sent(device, update.tensors)) if isinstance(update, Update) else update

    def poisoned(self, device: Device, examples: Examples) -> Examples:
        """Return the examples that a hostile device trains on; their number must not change."""
        return examples

    def sent(self, device: Device, tensors: Tensors) -> Tensors:
        """Return the tensors that a hostile device sends instead of its update's."""
        return tensors

    def triggered(self, examples: Examples) -> Examples | None:
        """Return an honest device's test examples as the attacker would change them, with the labels that it wants.

        The share of them that a model classifies as these labels is the attack's success. None for an attack without
        such a target.
        """
        return None
