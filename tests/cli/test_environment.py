"""`odt-sim doctor --environment` lists the installed and missing parts of the environment."""

import json
import os
import socket
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement

from odt_sim._support.system import cores
from odt_sim.cli.commands.environment import environment, extra
from odt_sim.cli.main import main


def test_figures_are_those_of_this_machine(monkeypatch, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "one.tflite").write_bytes(bytes(1000))
    monkeypatch.setenv("ODT_SIM_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = environment()
    assert {name: found["versions"][name] for name in ("odt_sim", "numpy")} == {
        name: version(name) for name in ("odt_sim", "numpy")
    }
    assert found["cores"] == cores() <= found["machine_cores"]
    assert 0 < found["available_bytes"] <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (found["cache"], found["cache_bytes"], found["chromium"]) == (str(tmp_path), 1000, None)
    assert found["extras"]["phone"]["installed"]["starlette"] == version("starlette")
    assert found["extras"]["phone"]["install"] is None


def test_missing_and_unfit_packages_come_with_their_pip_line():
    found = extra("some", [Requirement("no-such-package>=2"), Requirement("numpy<1"), Requirement("rich")])
    assert found == {
        "installed": {"rich": version("rich")},
        "missing": ["no-such-package>=2", f"numpy<1 (found {version('numpy')})"],
        "install": "pip install 'odt_sim[some]'",
    }


def test_extras_of_packages_count():
    found = extra("some", [Requirement("uvicorn[standard]")])
    assert "uvicorn" in found["installed"]
    assert {"websockets", "httptools"} <= {*found["installed"], *(each.partition(">")[0] for each in found["missing"])}


def test_ray_cluster_is_probed(monkeypatch):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        answering = environment()
    assert (answering["ray_address"], answering["ray_problem"]) == (address, None)
    assert "nothing answers there" in environment()["ray_problem"]


def test_command_prints_everything(odt_sim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, printed, _ = odt_sim("doctor", "--environment")
    assert code == 0
    assert {"machine", "cores", "memory", "cache", "Chromium", "export", "phone"} <= set(printed.split())
    code, printed, _ = odt_sim("doctor", "--environment", "--json")
    assert json.loads(printed)["versions"]["ray"] == version("ray")


@pytest.mark.parametrize("arguments", [[], ["model.tflite", "--environment"]])
def test_file_and_environment_exclude_each_other(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", *arguments])
    assert "expected either FILE or --environment" in capsys.readouterr().err
