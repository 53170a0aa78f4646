"""Leave out the tests that need PyTorch or `transformers` where they are not installed; `make test-torch` installs both."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["*.py"]
collect_ignore = [] if find_spec("transformers") else ["test_transformers.py"]
