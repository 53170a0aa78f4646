"""What privacy a run costs, by the accountant of `dp-accounting`; imported only where it is asked for."""

import math
from typing import Any

from odt_sim.errors import ConfigurationError


def required() -> Any:
    """Imports `dp_accounting`.

    Raises:
        ConfigurationError: It is not installed, or cannot be imported.
    """
    try:
        import dp_accounting.rdp
    except ImportError as error:
        raise ConfigurationError(
            f"aggregator=differential_privacy: cannot import dp_accounting ({error}); run: pip install 'odt_sim[privacy]'"
        ) from error
    return dp_accounting


def epsilon(noise_multiplier: float, delta: float, rounds: int, cohort: int, participants: int) -> float:
    """Returns the epsilon of rounds of a noisy sum over a cohort, drawn without replacement, where one user is replaced.

    Args:
        noise_multiplier: The noise's standard deviation over the norm to which each update is clipped.
        delta: The probability up to which epsilon may fail to hold.
        rounds: How often.
        cohort: The users of a round.
        participants: Those that they are drawn from.
    """
    if noise_multiplier == 0:
        return math.inf
    library = required()
    noisy = library.GaussianDpEvent(noise_multiplier / 2)  # replacing a user moves the sum by up to twice the norm
    sampled = library.SampledWithoutReplacementDpEvent(participants, cohort, noisy)

    def spent(event: object) -> float:
        accountant = library.rdp.RdpAccountant(neighboring_relation=library.NeighboringRelation.REPLACE_ONE)
        return float(accountant.compose(event, rounds).get_epsilon(delta))

    return min(
        spent(sampled), spent(noisy)
    )  # both hold: a draw hides nothing less, and its bound is loose for large ones
