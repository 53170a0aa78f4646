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

def nothing():
    return 3

def drift(data, seed):
    return 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, softmax, foreign):
    """A working folder with an earlier run and unusable files."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "yours.py").write_text(YOURS)
    (folder / "typo.py").write_text("class Mine(:\n")
    (folder / "needs.py").write_text("import no_such_package\n")
    (folder / "notes.tflite").write_text("these are only notes")
    (folder / "torn.tflite").write_bytes(softmax.content[: len(softmax.content) // 2])
    (folder / "infers.tflite").write_bytes(softmax.content.replace(b"\5\0\0\0train\0", b"\5\0\0\0brain\0"))
    (folder / "plain.tflite").write_bytes((foreign / "plain.tflite").read_bytes())
    random = np.random.default_rng(0)
    x, y = random.random((40, 8, 8, 1), np.float32), np.arange(40) % 10
    hole = x.copy()
    hole[7, 2, 3, 0] = np.nan
    arrays = {
        "good": {"x": x, "y": y},
        "small": {"x": x[:, :5], "y": y},
        "words": {"x": (x * 10).astype(np.int64), "y": y},
        "labels": {"x": x, "y": y + 1},
        "hole": {"x": hole, "y": y},
        "users": {"x": x, "y": y, "who": np.array([0] * 20 + [1] * 18 + [2] * 2)},
        "values": {"x": x, "y": random.random((40, 10), np.float32)},
    }
    for name, content in arrays.items():
        np.savez(folder / f"{name}.npz", **content)
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
    "not a .tflite": (["model=tflite", "model.path=notes.tflite"], r"notes\.tflite: not a \.tflite file \(.*\)"),
    "truncated .tflite": (["model=tflite", "model.path=torn.tflite"], r"torn\.tflite: damaged \.tflite file \(.*\); copy or"),
    "no signature to train": (
        ["model=tflite", "model.path=infers.tflite"],
        r"infers\.tflite: no signature 'train', found .*brain.*; it is not trainable, export it with odt_sim",
    ),
    "a fixed step size": (
        ["model=tflite", "model.path=plain.tflite", "model.loss=sparse_categorical_crossentropy", "train.learning_rate=0.1"],
        r"train\.learning_rate: expected null, since the step size of plain\.tflite is fixed, found 0\.1",
    ),
    "no path": (["model=tflite"], r"model: Missing mandatory value: .*; set it: model\.path=\.\.\."),
    # data
    "no such array": ([*NPZ, "data.path=good.npz", "data.y=z"], r"data good\.npz: has no array 'z'; found: x, y"),
    "wrong shape": (
        [*NPZ, "data.path=small.npz"],
        r"data small: x has shape \[5, 8, 1\] per example, the model's train signature takes \[8, 8, 1\]; choose",
    ),
    "wrong dtype": ([*NPZ, "data.path=words.npz"], r"data words: x has dtype int32, .* takes float32; .*convert the data"),
    "targets of a regression": ([*NPZ, "data.path=values.npz"], r"data values: y has (shape|dtype) .* takes"),
    "labels too large": (
        [*NPZ, "data.path=labels.npz"],
        r"data labels: 4 labels out of range, the first is 10 in example 9; expected 0\.\.9 for 10 classes; ",
    ),
    "NaN": ([*NPZ, "data.path=hole.npz"], r"data hole: x has 1 value that is NaN or infinite .*, the first in example 7; "),
    "a device with too few examples": (
        ["data=npz", "data.path=users.npz", "data.users=who", "partition=by_user", "fleet.devices=null", "fleet.unseen=0"],
        r"device 2 \(user 2\): expected at least 3 examples \(train, validation, test\), found 2; choose fewer devices",
    ),
    "more devices than examples": (["fleet.devices=700", "partition=iid"], r".*(700 devices|devices).*"),
    "no users": (["partition=by_user"], r"data digits: has no user ids.*"),
    "a function that raises": (
        ["data=function", "data.target=yours.examples"],
        r"data yours\.examples: failed with KeyError: 'examples' \(\S*yours\.py:12\); correct it",
    ),
    "a partition's number": (["partition.alpha=abc"], r"partition\.alpha: expected a number, found 'abc'"),
    "a batch size": (["model.batch_size=2.5"], r"model\.batch_size: expected a whole number of .*, found 2\.5"),
    "an unknown Keras data set": (["data=keras", "data.name=../mnist"], r"data \.\./mnist: is not the name of a Keras"),
    # strategies
    "a strategy that needs what the model lacks": (
        ["strategy._target_=yours.Needs"],
        r"strategy Needs: needs second_head, which .* lacks; export the model with it or",
    ),
    "nothing to average": (["strategy=fedper"], r"strategy fedper: needs .*body, which .*softmax.* lacks"),
    "no such strategy": (["strategy=fedprix"], r"strategy=fedprix: no such option; did you mean fedprox\? "),
    "a class that is no strategy": (
        ["strategy._target_=collections.OrderedDict"],
        r"strategy\._target_: expected a target that creates Strategy, found collections\.OrderedDict, which creates "
        r"OrderedDict",
    ),
    "a drift that gives no data": (["drift._target_=yours.drift"], r"drift drift: returned int, expected FederatedData"),
    "a strategy that is a module": (
        ["strategy._target_=email.message"],
        r"strategy\._target_: expected the name of a class or function, found email\.message of type module; correct it",
    ),
    "no such class": (["strategy._target_=yours.No"], r"strategy\._target_: yours has no 'No'; check the name"),
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
        r"model\.optimizer: expected a mapping, found \[\]; set its keys: model\.optimizer\.KEY=\.\.\.",
    ),
    "an optimizer that is no name": (["model.optimizer.name=[]"], r"model\.optimizer\.name: expected text, found \[\]"),
    "a model that is no name": (["model.build._target_=[]"], r"model\.build\._target_: expected text, found \[\]"),
    "a path that the model has not": (["model.path=notes.tflite"], r"model\.path: the chosen model has no path; add "
                                                                   r"model=tfl"),
    "a path that no model reads": (["+model.path=notes.tflite"], r"model\.path: the chosen model has no path; add "
                                                                 r"model=tflit"),
    "no such model": (
        ["model=keras", "model.build._target_=yours.no"],
        r"model\.build\._target_: yours has no 'no'; check the name",
    ),
    "no such hyper-parameter": (["+strategy.mu=1"], r"strategy\.mu: unknown setting; expected one of strategy\.server_learn"),
    "a strategy that raises": (
        ["strategy._target_=yours.Raises"],
        r"strategy Raises: failed on device \d in round 1 with AttributeError: .*no_such_thing.* \(\S*yours\.py:9\); ",
    ),
    # aggregators
    "an aggregator that the strategy ignores": (
        ["aggregator=median", "strategy=feddyn"],
        r"strategy feddyn: combines updates itself and does not use aggregator median; choose aggregator=mean",
    ),
    "too few for Krum": (["aggregator=krum"], r"aggregator krum: expected at least 5 updates, since 1 may be .*, found 3; "),
    "resuming with another aggregator": (
        ["run.resume=earlier", "aggregator=median"],
        r"\S+: belongs to a run with aggregator mean, but this run has median; resume with the same configuration",
    ),
    # settings
    "an unknown override": (["fleet.device=5"], r"fleet\.device: unknown setting; did you mean fleet\.devices\?"),
    "an unknown key of a sweep": (["-m", "+lr=0.1,0.001"], r"lr: unknown setting; did you mean train\.learning_rate or "),
    "a list of options": (["-m", "strategy=[local,fedavg]"], r"strategy: expected one option, found a list; sweep by -m "),
    "no model": (["model.build=null"], r"model\.build: expected a mapping, found None"),
    "an address that is a number": (
        ["backend=ray", "backend.address=6399"],
        r"backend\.address: expected text, found 6399",
    ),
    "an address that is none": (
        ["backend=ray", "backend.address=nowhere"],
        r"backend\.address: expected local, auto or host:port, found 'nowhere'",
    ),
    "a path that is a number": (["data=npz", "data.path=5"], r"data\.path: expected text, found 5"),
    "a percentage to reach": (["run.target=85"], r"run\.target: expected an accuracy from 0 to 1, found 85"),
    "too many unseen": (["fleet.unseen=4"], r"fleet\.unseen: expected 0 to 3, found 4; the fleet has 4 devices"),
    "stragglers with one epoch": (
        ["fleet.stragglers=0.5"],
        r"train\.epochs: expected at least 2 with fleet\.stragglers=0\.5, found 1; a straggler does fewer epochs",
    ),
    "fractions": (["split.test=0.9"], r"split: expected validation and test to sum to below 1, found 0\.2 and 0\.9"),
    "actors": (["backend=ray", "backend.actors=0"], r"backend\.actors: expected at least 1 or null, found 0"),
    "a folder that holds a run": (["hydra.run.dir=earlier"], r"\S+earlier: already contains a run; resume it with"),
    "another run's checkpoint": (["run.storage=earlier/checkpoint"], r"\S+checkpoint/server\.2\.safetensors: already c"),
    "a file instead of a storage folder": (
        ["run.storage=notes.tflite/below"],
        r"run\.storage: \S+notes\.tflite/below/\.lock: cannot write it \(Not a directory\); choose another location",
    ),
    "a file in place of a storage folder": (
        ["run.storage=notes.tflite"],
        r"run\.storage: \S+notes\.tflite: expected a folder, found a file; choose another location",
    ),
    "resuming with another strategy": (["run.resume=earlier", "strategy=local"], r"\S+: belongs to a run with strategy fed"),
    "resuming with a wrong setting": (
        ["run.resume=earlier", "backend=ray", "backend.actors=0"],
        r"backend\.actors: expected at least 1 or null, found 0",
    ),
    "resuming without a run": (["run.resume=nowhere"], r"run\.resume: nowhere is not the folder of a run or a sweep"),
    "resuming a run by -m": (["-m", "run.resume=earlier"], r"run\.resume: earlier is not the folder of a sweep; with -m"),
    "a value of a sweep": (["-m", "strategy=local,no"], r"strategy=no: no such option; choose one of "),
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
