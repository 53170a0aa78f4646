"""Synthetic(alpha, beta): softmax regression data whose weights and inputs differ between users.

Li et al., "Federated Optimization in Heterogeneous Networks" (FedProx), MLSys 2020, section 5.1 and appendix C.1, as
published in code. User k has n_k = int(L) + 50 examples, L log-normal with mean 4 and standard deviation 2 of its
logarithm, and

    y = argmax(softmax(W_k x + b_k)),   W_k, b_k ~ N(u_k, 1),   u_k ~ N(0, alpha^2)
    x ~ N(v_k, Sigma),   v_k ~ N(B_k, 1),   B_k ~ N(0, beta^2),   Sigma = diag(j^-1.2), j = 1..60

with 10 classes; alpha and beta are standard deviations. In the iid variant all users share one W, b ~ N(0, 1), and v_k = 0.
"""

import numpy as np
from numpy.typing import NDArray

from odt_sim._support.checks import Range, check_value
from odt_sim.data.checks.dataset_checks import check
from odt_sim.data.dataset import Dataset

FEATURES, CLASSES = 60, 10
_STREAM = 3  # separates these random numbers from those of partitions and splits


def synthetic(alpha: float = 1.0, beta: float = 1.0, *, iid: bool = False, users: int = 30, seed: int = 0) -> Dataset:
    """Draw FedProx' Synthetic(alpha, beta), reproducibly by the seed.

    Args:
        alpha: The standard deviation between the users' models, at least 0.
        beta: The standard deviation between their inputs, at least 0.
        iid: Whether all users share one model and one distribution of inputs; alpha and beta then have no effect.
        users: The number of users.
        seed: The seed of the data, independent of a run's seed.

    Returns:
        `x` `[examples, 60]` float32, `y` `[examples]` int32 in 0..9, `users` `[examples]` in 0..users-1.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    generator = drawn(_STREAM, seed, alpha=(alpha, 0), beta=(beta, 0), users=(users, 1))
    sizes = user_sizes(users, generator)
    name = "synthetic_iid" if iid else f"synthetic({alpha:g},{beta:g})"
    return draw(f"{name} seed={seed}", sizes, alpha, beta, generator, iid=iid)


def pfedme_synthetic(alpha: float = 0.5, beta: float = 0.5, *, users: int = 100, seed: int = 0) -> Dataset:
    """Draw pFedMe's Synthetic(alpha, beta): the same recipe with five times as many examples per user.

    Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020, section 5.1, as published in code.

    Args:
        alpha: The standard deviation between the users' models, at least 0.
        beta: The standard deviation between their inputs, at least 0.
        users: The number of users.
        seed: The seed of the data, independent of a run's seed.

    Returns:
        `x` `[examples, 60]` float32, `y` `[examples]` int32 in 0..9, `users` `[examples]` in 0..users-1.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    generator = drawn(_STREAM, seed, alpha=(alpha, 0), beta=(beta, 0), users=(users, 1))
    name = f"pfedme_synthetic({alpha:g},{beta:g}) seed={seed}"
    return draw(name, 5 * user_sizes(users, generator), alpha, beta, generator)


def drawn(stream: int, seed: int, **settings: tuple[float, float]) -> np.random.Generator:
    """Check the settings of a data set and return its random generator.

    Args:
        stream: Separates the random numbers of data sets, partitions and splits.
        seed: The seed of the data, independent of a run's seed.
        **settings: The value and the minimum of each setting.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    for name, (value, least) in {**settings, "seed": (seed, 0)}.items():
        check_value(f"data.{name}", float, value, Range(least=least))
    return np.random.default_rng([seed, stream])


def user_sizes(users: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw the number of each user's examples."""
    return generator.lognormal(4, 2, users).astype(np.int64) + 50


def draw(
    name: str, sizes: NDArray[np.int64], alpha: float, beta: float, generator: np.random.Generator, *, iid: bool = False
) -> Dataset:
    """Draw the given numbers of examples as described in the module's docstring."""
    deviations = np.arange(1, FEATURES + 1) ** -0.6  # the square root of Sigma's diagonal
    model_means, input_means = generator.normal(0, alpha, len(sizes)), generator.normal(0, beta, len(sizes))
    shared = _model(0.0, generator)
    inputs, labels = [], []
    for size, model_mean, input_mean in zip(sizes, model_means, input_means, strict=True):
        weights, bias = shared if iid else _model(model_mean, generator)
        center = np.zeros(FEATURES) if iid else generator.normal(input_mean, 1, FEATURES)
        x = center + deviations * generator.normal(size=(size, FEATURES))
        inputs.append(x)
        labels.append((x @ weights + bias).argmax(axis=1))
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return check(Dataset(name, np.concatenate(inputs), np.concatenate(labels), owners, CLASSES))


def _model(mean: float, generator: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return generator.normal(mean, 1, (FEATURES, CLASSES)), generator.normal(mean, 1, CLASSES)
