"""User errors in the real command: one line says what, where and what to do, and earlier runs stay intact."""

import os
import re
import resource
import subprocess
import sys

import numpy as np
import pytest

from odt_sim.cli.commands.run import launch
from odt_sim.cli.main import main

COMMAND = [sys.executable, "-c", "import sys; from odt_sim.cli.main import main; sys.exit(main())"]
BASE = ["model=softmax", "backend=serial", "run.rounds=2", "fleet.devices=4", "fleet.unseen=1"]
NPZ = ["data=npz", "partition=iid"]

YOURS = """
from odt_sim import Strategy

class Needs(Strategy):
    needs = frozenset({"second_head"})

class Raises(Strategy):
    def local(self, device, broadcast):
        return device.no_such_thing

def examples():
    return {}["examples"]

def drift(data, seed):
    return 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, softmax):
    """A working folder with an earlier run and unusable files."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "yours.py").write_text(YOURS)
    (folder / "typo.py").write_text("class Mine(:\n")
    (folder / "needs.py").write_text("import no_such_package\n")
    (folder / "notes.tflite").write_text("these are only notes")
    (folder / "infers.tflite").write_bytes(softmax.content.replace(b"\5\0\0\0train\0", b"\5\0\0\0brain\0"))
    random = np.random.default_rng(0)
    np.savez(folder / "values.npz", x=random.random((40, 8, 8, 1), np.float32), y=random.random((40, 10), np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert launch([*BASE, "hydra.run.dir=earlier"]).failed == 0
    return folder


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def refused(folder, monkeypatch, capfd):
    """Return a function that runs a command and returns its one-line error; the earlier run must stay unchanged."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.path", [*sys.path])

    def run(*arguments):
        before = contents(folder / "earlier")
        code = main(list(arguments))
        out, err = capfd.readouterr()
        assert code == 1
        assert contents(folder / "earlier") == before
        [line] = [line for line in err.splitlines() if line.startswith("error: ")]
        assert line == err.splitlines()[-1]
        if not re.search(r"failed .*with \w+: ", line):  # an exception in user code on backend=serial has its traceback
            assert "Traceback" not in out + err
        assert "report: " not in out
        return line.removeprefix("error: ")

    return run


NO_FILE = r"cannot read the model \(No such file or directory\); give the path of a \.tflite file"
CASES = {
    # models
    "no such model file": (["model=tflite", "model.path=no.tflite"], rf"no\.tflite: {NO_FILE}"),
    "no signature to train": (
        ["model=tflite", "model.path=infers.tflite"],
        r"infers\.tflite: no signature 'train', found .*brain.*; it is not trainable, export it with odt_sim",
    ),
    # data
    "targets of a regression": ([*NPZ, "data.path=values.npz"], r"data values: y has (shape|dtype) .* takes"),
    "a function that raises": (
        ["data=function", "data.target=yours.examples"],
        r"data yours\.examples: failed with KeyError: 'examples' \(\S*yours\.py:12\); correct it",
    ),
    # strategies
    "a strategy that needs what the model lacks": (
        ["strategy._target_=yours.Needs"],
        r"strategy Needs: needs second_head, which .* lacks; export the model with it or",
    ),
    "nothing to average": (["strategy=fedper"], r"strategy fedper: needs .*body, which .*softmax.* lacks"),
    "a drift that gives no data": (["drift._target_=yours.drift"], r"drift drift: returned int, expected FederatedData"),
    "a strategy that is a module": (
        ["strategy._target_=email.message"],
        r"strategy\._target_: expected the name of a class or function, found email\.message of type module; correct it",
    ),
    "a file with a typing error": (
        ["strategy._target_=typo.Mine"],
        r"strategy\._target_: cannot import typo \(SyntaxError: .*typo\.py.*\); check the name, the file, and PYTHONPATH",
    ),
    "a file that imports a missing package": (
        ["strategy._target_=needs.Mine"],
        r"strategy\._target_: cannot import needs \(ModuleNotFoundError: No module named 'no_such_package'\); install "
        r"no_such_package, or add it to PYTHONPATH",
    ),
    "no such metric": (["metrics=[yours.no]"], r"metrics: yours has no 'no'; check the name"),
    "a metric that is a class": (["metrics=[yours.Needs]"], r"metrics: expected functions, found the class Needs; name a f"),
    "a list in place of a mapping": (
        ["model.optimizer=[]"],
        r"Error merging override \+\+model\.optimizer=\[\]; Cannot merge DictConfig with ListConfig; odt-sim run --help",
    ),
    "an optimizer that is no name": (["model.optimizer.name=[]"], r"model\.optimizer\.name: expected text, found \[\]"),
    "a model that is no name": (["model.build._target_=[]"], r"model\.build\._target_: expected text, found \[\]"),
    "a path that the model has not": (["model.path=notes.tflite"], r"model\.path: the chosen model has no path; add "
                                                                   r"model=tfl"),
    "no such model": (
        ["model=keras", "model.build._target_=yours.no"],
        r"model\.build\._target_: yours has no 'no'; check the name",
    ),
    "a strategy that raises": (
        ["strategy._target_=yours.Raises"],
        r"strategy Raises: failed on device \d in round 1 with AttributeError: .*no_such_thing.* \(\S*yours\.py:9\); ",
    ),
    # aggregators
    "resuming with another aggregator": (
        ["run.resume=earlier", "aggregator=median"],
        r"\S+: belongs to a run with aggregator mean, but this run has median; resume with the same configuration",
    ),
    # settings
    "a path that is a number": (["data=npz", "data.path=5"], r"data\.path: expected text, found 5"),
    "stragglers with one epoch": (
        ["fleet.stragglers=0.5"],
        r"train\.epochs: expected at least 2 with fleet\.stragglers=0\.5, found 1; a straggler does fewer epochs",
    ),
    "another run's checkpoint": (["run.storage=earlier/checkpoint"], r"\S+checkpoint/server\.2\.safetensors: already c"),
    "a file in place of a storage folder": (
        ["run.storage=notes.tflite"],
        r"run\.storage: \S+notes\.tflite: expected a folder, found a file; choose another location",
    ),
    "resuming with another strategy": (["run.resume=earlier", "strategy=local"], r"\S+: belongs to a run with strategy fed"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_mistake_is_reported_in_one_line(refused, case):
    overrides, message = CASES[case]
    found = refused("run", *BASE, *overrides)
    assert re.match(message, found), found


@pytest.mark.slow
def test_damaged_checkpoint_falls_back_or_is_refused(refused, folder, capfd):
    assert launch([*BASE, "hydra.run.dir=damaged"]).failed == 0
    before, last = (folder / "damaged" / "checkpoint" / f"server.{round}.safetensors" for round in (1, 2))
    last.write_bytes(last.read_bytes()[:-7])
    capfd.readouterr()
    assert launch(["run.resume=damaged"]).failed == 0
    warning = rf"^warning {last}: damaged.*; restore it from a backup: the run resumes after round 1$"
    assert re.search(warning, capfd.readouterr().err, re.M)
    for path in (before, last):
        path.write_bytes(path.read_bytes()[:-7])
    found = refused("run", "run.resume=damaged")
    assert re.match(r"\S+damaged/checkpoint/server\.2\.safetensors: damaged.*; restore it from a backup", found), found


def test_error_of_several_lines_is_joined(refused):
    assert "\n" not in refused("run", *BASE, "data=function", "data.target=no.such.module.examples")


@pytest.mark.slow
def test_unreachable_ray_is_reported(folder):
    """In a subprocess, since a process uses one Ray."""
    command = [*COMMAND, "run", *BASE, "backend=ray", "backend.address=127.0.0.1:1"]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    child = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert child.returncode == 1
    last = child.stderr.splitlines()[-1]
    assert re.match(r"error: backend\.address=127\.0\.0\.1:1: nothing answers there \(.+\); ", last), last


# --- a full disk -------------------------------------------------------------------------------------------------------


def limited(size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.mark.slow
def test_run_resumes_after_a_failed_write(folder, softmax, monkeypatch, capsys):
    """A file size limit makes writes fail like a full disk, without root privileges."""
    given = [
        *BASE,
        "run.rounds=500",
        "strategy=local",
        "train.epochs=0",
        "hydra.run.dir=full",
        "run.evaluate_every=500",
    ]
    limit = limited(len(softmax.content) + 100)
    child = subprocess.run([*COMMAND, "run", *given], cwd=folder, capture_output=True, text=True, preexec_fn=limit)
    assert child.returncode == 1
    assert re.match(r"error: \S+full/rounds\.jsonl: cannot write it \(.+\); free space", child.stderr.splitlines()[-1])
    monkeypatch.chdir(folder)
    committed = len((folder / "full" / "rounds.jsonl").read_text().splitlines())
    assert 2 < committed < 500
    assert launch(["run.resume=full", f"run.rounds={committed + 2}"]).failed == 0
    assert len((folder / "full" / "rounds.jsonl").read_text().splitlines()) == committed + 2


@pytest.mark.slow
def test_model_that_cannot_be_written_ends_the_run(folder, softmax):
    child = subprocess.run(
        [*COMMAND, "run", *BASE, "hydra.run.dir=tight"],
        cwd=folder,
        capture_output=True,
        text=True,
        preexec_fn=limited(len(softmax.content) - 1),
    )
    assert child.returncode == 1
    [line] = [line for line in child.stderr.splitlines() if line.startswith("error: ")]
    assert re.match(
        r"error: \S*tight/(initial|model)\.tflite: cannot write it \(File too large\); free space there,",
        line,
    )
    assert [path.name for path in (folder / "tight").iterdir() if path.name.startswith((".model", "model"))] == []


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 160 kB, which only root can mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("backend", ["serial", pytest.param("ray", marks=pytest.mark.slow)])
def test_run_resumes_after_a_full_disk(small_disk, backend, monkeypatch, capsys, softmax):
    monkeypatch.chdir(small_disk.parent)
    given = ["model=softmax", "strategy=local", "fleet.unseen=0", f"backend={backend}", "run.rounds=2"]
    assert main(["run", *given, "fleet.devices=30", f"hydra.run.dir={small_disk}"]) == 1
    _, err = capsys.readouterr()
    assert re.match(
        rf"error: {small_disk}/\S+: cannot write it \(No space left on device\); ",
        err.splitlines()[-1],
    )
    assert not list(small_disk.rglob(".*.safetensors*"))
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    assert main(["run", f"run.resume={small_disk}"]) == 0
    assert len((small_disk / "rounds.jsonl").read_text().splitlines()) == 2


def test_cases_leave_no_unfinished_files(folder):
    assert {path.name for path in folder.iterdir() if path.is_dir()} <= {
        "earlier", "outputs", "multirun", "damaged", "full", "tight", "__pycache__",
    }  # fmt: skip
    assert {path.name for path in folder.rglob(".*")} <= {".hydra", ".lock"}  # no unfinished file
