"""Leave out the tests that need PyTorch where it is not installed; `make test-torch` installs it."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["*.py"]
