"""The larger Synthetic(alpha, beta) of pFedMe: 100 users with five times as many examples each.

Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, section 5.1, as their published program
draws it: the recipe of `odt_sim.data.fedprox_synthetic`, with n_k = 5 (int(L) + 50) examples.
"""

from odt_sim.data.dataset import Dataset
from odt_sim.data.fedprox_synthetic import checked_generator, draw, user_sizes


def pfedme_synthetic(alpha: float = 0.5, beta: float = 0.5, *, users: int = 100, seed: int = 0) -> Dataset:
    """Draws pFedMe's Synthetic(alpha, beta); the seed decides it to the bit.

    Args:
        alpha: How much the users' models differ, a standard deviation, at least 0.
        beta: How much their inputs differ, a standard deviation, at least 0.
        users: How many users.
        seed: The seed of the data, apart from that of a run.

    Returns:
        `x` `[examples, 60]` float32, `y` `[examples]` int32 in 0..9, `users` `[examples]` in 0..users-1.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    generator = checked_generator(alpha, beta, users, seed)
    name = f"pfedme_synthetic({alpha:g},{beta:g}) seed={seed}"
    return draw(name, 5 * user_sizes(users, generator), alpha, beta, generator)
