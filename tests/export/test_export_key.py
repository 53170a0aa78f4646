"""The cache key covers the sources that may affect the build function, and no others."""

from pathlib import Path
from typing import Any

import pytest

from odt_sim.export.cache import _key, _sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a module, a package and an environment of installed packages."""
    for name in ("network.py", "blocks.py", "nets/__init__.py", "nets/vision/__init__.py", "nets/vision/small.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    installed = tmp_path / "env" / "site-packages" / "zoo"
    installed.mkdir(parents=True)
    for name in ("__init__.py", "models.py", "layers.py"):
        (installed / name).write_text("")
    return tmp_path


def spec(target: str, *paths: Path) -> dict[str, Any]:
    return {"build": {"_target_": target}, "sys_path": [str(path) for path in paths]}


@pytest.mark.parametrize("target", ["network.build", "nets.vision.small.build", "nets.build"])
@pytest.mark.parametrize("changed", ["blocks.py", "nets/__init__.py"])
def test_helper_beside_the_users_module_changes_the_key(folder: Path, target: str, changed: str) -> None:
    before = _key(spec(target, folder))
    assert _key(spec(target, folder)) == before
    (folder / changed).write_text("WIDTH = 3\n")
    assert _key(spec(target, folder)) != before


def test_any_file_of_the_users_package_changes_the_key(folder: Path) -> None:
    before = _key(spec("nets.build", folder))
    (folder / "nets" / "vision" / "small.py").write_text("WIDTH = 3\n")
    assert _key(spec("nets.build", folder)) != before


@pytest.mark.parametrize("own", [{"loss": "nets.mine.loss"}, {"loss": {"a": "mse", "b": "nets.mine.loss"}}])
def test_own_loss_changes_the_key(folder: Path, own: dict[str, Any]) -> None:
    elsewhere = folder / "elsewhere"
    (elsewhere / "nets").mkdir(parents=True)
    (elsewhere / "nets" / "mine.py").write_text("")
    given = {**spec("odt_sim.export.zoo.mlp", elsewhere), **own}
    before = _key(given)
    (elsewhere / "nets" / "mine.py").write_text("MARGIN = 3\n")
    assert _key(given) != before


def test_other_and_deeply_nested_files_keep_the_key(folder: Path) -> None:
    before = _key(spec("network.build", folder))
    (folder / "notes.txt").write_text("hello")
    (folder / "env" / "site-packages" / "zoo" / "layers.py").write_text("WIDTH = 3\n")
    assert _key(spec("network.build", folder)) == before


def test_installed_module_is_its_own_only_source(folder: Path) -> None:
    installed = folder / "env" / "site-packages"
    assert _sources(spec("zoo.models.build", installed)) == [installed / "zoo" / "models.py"]


def test_shipped_zoo_is_its_own_only_source() -> None:
    [source] = _sources(spec("odt_sim.export.zoo.mlp"))
    assert source.name == "zoo.py"


@pytest.mark.parametrize("target", ["no_such_module.build", "sys.exit", "odt_sim_nothing"])
def test_module_without_a_file_has_no_source(target: str) -> None:
    assert _sources(spec(target)) == []
