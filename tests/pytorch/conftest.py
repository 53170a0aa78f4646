"""Leave out the tests that need PyTorch or `transformers` where they are not installed; `make test-torch` installs both."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["*.py"]
collect_ignore = [] if find_spec("transformers") else ["test_transformers.py"]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread, since additional threads busy-wait, and each core runs a pytest process."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
