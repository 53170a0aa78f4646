"""No file that odt_sim reads can make Python run what is in it."""

import ast
from pathlib import Path

import pytest

import odt_sim

UNPICKLING = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LOADING = {"np.load", "numpy.load"}
UNSAFE = {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.load", "eval", "exec", "compile", "pd.read_pickle"}
FILES = sorted(Path(odt_sim.__file__).parent.rglob("*.py"))


def faults(source: str) -> list[str]:
    """Returns what a module does that could unpickle a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in UNPICKLING]
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names if _unpickles(node.module, alias.name)]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in UNSAFE:
            found.append(ast.unparse(node.func))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOADING:
            found += [] if "allow_pickle=False" in map(ast.unparse, node.keywords) else [ast.unparse(node)]
    return found


def _unpickles(module: str, name: str) -> bool:
    return module.partition(".")[0] in UNPICKLING or name in UNPICKLING


def test_nothing_is_unpickled() -> None:
    assert len(FILES) > 150
    found = {path.name: faults(path.read_text()) for path in FILES}
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import pickle", "pickle"),
        ("from ray import cloudpickle", "ray.cloudpickle"),
        ("from pickle import loads", "pickle.loads"),
        ("import yaml\nyaml.load(text)", "yaml.load"),
        ("import numpy as np\nnp.load(path)", "np.load(path)"),
        ("import numpy as np\nnp.load(path, allow_pickle=True)", "np.load(path, allow_pickle=True)"),
        ("eval(text)", "eval"),
    ],
)
def test_a_module_that_does_would_be_found(source: str, fault: str) -> None:
    assert faults(source) == [fault]


def test_arrays_may_be_read_without() -> None:
    assert faults("import numpy as np\nnp.load(path, allow_pickle=False)\nimport re\nre.compile(text)") == []
