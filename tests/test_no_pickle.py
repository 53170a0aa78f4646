"""No file that odt_sim reads can execute code."""

import ast
from pathlib import Path

import pytest

import odt_sim

UNPICKLING = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LOADING = {"np.load", "numpy.load"}
UNSAFE = {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.load", "eval", "exec", "compile", "pd.read_pickle"}
FILES = sorted(Path(odt_sim.__file__).parent.rglob("*.py"))


def unsafe_code(source: str) -> list[str]:
    """Return the imports and calls of a module that could unpickle or execute a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in UNPICKLING]
        if isinstance(node, ast.ImportFrom) and node.module:
            package = node.module.partition(".")[0]
            names = [alias.name for alias in node.names if package in UNPICKLING or alias.name in UNPICKLING]
            found += [f"{node.module}.{name}" for name in names]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in UNSAFE:
            found.append(ast.unparse(node.func))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOADING:
            found += [] if "allow_pickle=False" in map(ast.unparse, node.keywords) else [ast.unparse(node)]
    return found


@pytest.mark.slow
def test_package_does_not_unpickle() -> None:
    assert len(FILES) > 150
    found = {path.name: unsafe_code(path.read_text()) for path in FILES}
    # Only a process and its forks can write into the pipes between them.
    assert {name: code for name, code in found.items() if code} == {"pipes.py": ["pickle"]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pickle", ["pickle"]),
        ("from ray import cloudpickle", ["ray.cloudpickle"]),
        ("import yaml\nyaml.load(text)", ["yaml.load"]),
        ("import numpy as np\nnp.load(path)", ["np.load(path)"]),
        ("import numpy as np\nnp.load(path, allow_pickle=False)\nimport re\nre.compile(text)", []),
    ],
)
def test_unsafe_code_is_found(source: str, expected: list[str]) -> None:
    assert unsafe_code(source) == expected
