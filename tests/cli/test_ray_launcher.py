"""Hydra's Ray launcher, if its package is installed."""

import subprocess

import pytest
from command_process import COMMAND
from commands import FEW, runs

pytest.importorskip("hydra_plugins.hydra_ray_launcher")

RAY = ["hydra/launcher=ray", "hydra.launcher.ray.init.address=local", "+hydra.launcher.ray.init.num_cpus=2"]


def run(folder, *arguments):
    with (folder / "log.txt").open("w+b") as log:  # Ray's processes would keep a pipe open
        code = subprocess.run([*COMMAND, "run", *arguments], stdout=log, stderr=log, timeout=180).returncode
    text = (folder / "log.txt").read_text()
    assert code == 0, text
    return text


@pytest.mark.slow
def test_ray_launcher_runs_resumes_and_compares_a_sweep(folder):
    given = ["-m", "strategy=fedavg,fedper", *FEW, "run.rounds=2"]
    assert "report: sweep/report.html" in run(folder, *given, *RAY, "hydra.sweep.dir=sweep")
    before = [(path / "devices.jsonl").stat().st_mtime_ns for path in runs(folder)]
    assert len(before) == 2
    run(folder, "run.resume=sweep")
    assert [(path / "devices.jsonl").stat().st_mtime_ns for path in runs(folder)] == before
    run(folder, *given, "hydra.sweep.dir=whole")
    for job in "01":
        one, other = (folder / name / job / "devices.jsonl" for name in ("sweep", "whole"))
        assert one.read_bytes() == other.read_bytes()
