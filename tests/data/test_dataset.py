import numpy as np

from odt_sim.data import Dataset, federate, iid
from odt_sim.data.dataset import digest_of

X, Y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1], np.int32)


def test_digest_depends_on_values_shapes_dtypes_and_users():
    changed = X.copy()
    changed[5, 1] = 11.5
    users = np.array(["ann", "bob"] * 3)
    others = [
        (changed, Y),
        (X.reshape(4, 3), Y),
        (X.astype(np.int32), Y),
        (X, Y[::-1]),
        (X, Y, users),
        (X, Y, users[::-1]),
        (X[:0], Y),
    ]
    found = [digest_of(X, Y), *(digest_of(*arrays) for arrays in others)]
    assert len(set(found)) == len(found)


def test_digest_ignores_the_memory_layout():
    users = np.array(["ann", "bob"])
    assert digest_of(np.asfortranarray(X), Y, None) == digest_of(X, Y)
    assert digest_of(users.astype(object)) == digest_of(users)


def test_digest_ignores_the_partition():
    found = {
        federate(Dataset("clouds", X, Y, classes=2), iid, devices, seed).digest for devices in (1, 2) for seed in (0, 1)
    }
    assert found == {digest_of(X, Y)}
