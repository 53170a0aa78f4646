"""All commands except `run`, and their usage."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from commands import FEW, runs

from odt_sim import TrainableModel
from odt_sim.cli.command_table import COMMANDS, FORMATS
from odt_sim.cli.main import main
from odt_sim.deploy.formats import FORMATS as DEPLOYED

# --- usage -------------------------------------------------------------------------------------------------------


def test_version_is_printed(odt_sim):
    code, out, _ = odt_sim("--version")
    assert code == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", out)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_the_commands(odt_sim, flag):
    code, out, err = odt_sim(flag)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert all(f"\n  {command} " in out for command in ("run", "report", "export", "inspect", "doctor", "completion"))


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_a_function_and_a_help(name, capsys):
    assert callable(getattr(import_module(f"odt_sim.cli.commands.{name}"), name))
    with suppress(SystemExit):  # by argparse
        main([name, "--help"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: odt-sim {name} ")
    assert COMMANDS[name].settings.keys() <= {*re.findall(r"^  (\w+)=", printed, re.MULTILINE)}


def test_formats_are_those_of_deployments():
    assert FORMATS == DEPLOYED


def test_missing_command_shows_the_commands(odt_sim):
    code, out, err = odt_sim()
    assert (code, out) == (2, "")
    assert err.startswith("usage: odt-sim COMMAND")


@pytest.mark.parametrize(
    ("name", "advice"),
    [("runn", "did you mean odt-sim run?"), ("train", "expected one of run, tune, "), ("-x", "expected one of run, ")],
)
def test_unknown_command_is_refused_in_one_line(odt_sim, name, advice):
    code, out, err = odt_sim(name)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {name}: unknown command; {advice}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["report"], ["inspect"], ["inspect", "a", "b"], ["run", "-x"]])
def test_incorrect_usage_of_a_command_shows_its_usage(odt_sim, arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        odt_sim(*arguments)
    assert caught.value.code == 2
    assert "usage: odt-sim" in capsys.readouterr().err


def test_configuration_is_printed_without_a_run(odt_sim, folder):
    code, out, _ = odt_sim("run", "--cfg", "job", "strategy=fedper", "fleet.cohort=3")
    assert code == 0
    assert "odt_sim.strategies.FedPer" in out
    assert "cohort: 3" in out
    assert runs(folder) == []


def test_command_is_installed():
    found = shutil.which("odt-sim", path=str(Path(sys.executable).parent))
    assert found
    assert subprocess.run([found, "--version"], capture_output=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("command", ["run", "export"])
def test_text_with_umlauts_needs_no_quotes_of_its_own(odt_sim, folder, command):
    code, _, error = odt_sim(command, "model=keras_file", "model.path=Köln.keras")
    assert code == 1
    assert "Köln.keras" in error
    assert "cannot read" not in error


# --- other commands ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_report_compares_runs_on_disk(odt_sim, run, folder):
    for strategy in ("local", "fedper"):
        assert run(f"strategy={strategy}", *FEW, f"hydra.run.dir=runs/{strategy}")[0] == 0
    options = ["--best", "--against", "local", "--target", "0.01", "-o", "page.html"]
    code, out, _ = odt_sim("report", "runs", *options)
    assert code == 0
    assert re.search(r"^local ", out, re.M)
    assert re.search(r"^fedper ", out, re.M)
    assert "Paired differences from local" in out
    assert (folder / "page.html").exists()
    assert json.loads((folder / "comparison.json").read_text())["target"] == 0.01
    code, _, err = odt_sim("report", "runs", "--against", "ditto")
    assert (code, err) == (1, "error: against: expected one of fedper, local, found 'ditto'\n")


def test_inspect_shows_an_open_batch_size(odt_sim, folder, any_rows):
    Path("any.tflite").write_bytes(any_rows.content)
    code, out, _ = odt_sim("inspect", "any.tflite")
    assert code == 0
    assert "batches of any size, 32 by default" in out
    assert "x float32[?, 6]" in out


def test_inspect_shows_every_input_and_shortens_numbered_lists(odt_sim, folder, heads, adam_head):
    Path("heads.tflite").write_bytes(heads.content)
    out = odt_sim("inspect", "heads.tflite")[1]
    train = out.partition("\n train ")[2].partition("Parameters")[0]
    for tensor in (
        "learning_rate float32[]",
        "sample_weight float32[8]",
        "x float32[8, 6]",
        "y_kind int32[8]",
        "y_size",
    ):
        assert tensor in train, tensor
    assert re.search(r"parameters +a0 float32\[6, 5\] +\n +\.\. a5 float32\[1\] \(6\)", out)
    Path("adam.tflite").write_bytes(adam_head.content)
    assert re.search(r"s0 int32\[\] +\n +\.\. s12 float32\[3\] \(13\)", odt_sim("inspect", "adam.tflite")[1])


@pytest.mark.parametrize("width", [50, 80, 300])
def test_inspect_breaks_no_heading_of_the_ops(odt_sim, folder, adam_head, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    Path("adam.tflite").write_bytes(adam_head.content)
    ops = odt_sim("inspect", "adam.tflite")[1].partition("\nOps")[2]
    tables = [line.split()[1:] for line in ops.splitlines() if line.startswith(" op ")]
    assert [name for names in tables for name in names] == sorted(adam_head.operators)
    assert (len(tables) == 1) == (width == 300)
    assert re.search(rf"^ BATCH_MATMUL .*{adam_head.operators['train']['BATCH_MATMUL']}", ops, re.M)
    assert max(map(len, ops.splitlines())) <= width


def test_inspect_wraps_the_strategies_at_words_in_a_terminal(odt_sim, folder, digits_mlp, monkeypatch):
    Path("mlp.tflite").write_bytes(digits_mlp.content)
    plain = odt_sim("inspect", "mlp.tflite")[1]
    line = re.search("^strategies: .*$", plain, re.MULTILINE)[0]
    assert "fedper" in line
    assert "lora" not in line
    assert "\nother strategies, by what they need:\n  contrastive, embed: moon\n" in plain
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then detects a terminal
    wrapped = re.search(r"^strategies: (.*\n)+?(?=.*Ops)", odt_sim("inspect", "mlp.tflite")[1], re.MULTILINE)[0]
    assert wrapped.split()[: len(line.split())] == line.split()
    assert all(len(each.rstrip()) <= 80 for each in wrapped.splitlines())


def test_model_is_exported_and_inspected(odt_sim, folder, digits_mlp):
    code, out, _ = odt_sim("export", "model=digits_mlp", "-o", "deep/[my].tflite")
    assert code == 0
    assert TrainableModel.load(folder / "deep" / "[my].tflite").fingerprint == digits_mlp.fingerprint
    assert re.match(r"deep/\[my\]\.tflite: [\d,]+ bytes, 4,810 parameters, signatures .*train", out)
    code, out, _ = odt_sim("inspect", "deep/[my].tflite")
    assert code == 0
    assert out.startswith("deep/[my].tflite: ")
    assert f"default learning rate {digits_mlp.manifest.optimizer['learning_rate']:g}" in " ".join(out.split())
    for word in ("Signatures", "sample_weight float32[16]", "dense_0/kernel", "64 x 64", "head", "BATCH_MATMUL"):
        assert word in out, word


def test_export_is_named_after_the_model(odt_sim, folder):
    assert odt_sim("export", "model=digits_mlp")[0] == 0
    assert (folder / "digits_mlp.tflite").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "model=tflite", "model.path=x.tflite"], "model: is already a .tflite file; choose a model"),
        (["export", "model=digits_mlp", "-o", "mine.py/x.tflite"], "mine.py/x.tflite: cannot write it (File exists); choose"),
        (["export", "modal=digits_mlp"], "modal: unknown setting; did you mean model?"),
        (["inspect", "mine.py"], "mine.py: "),
        (["inspect", "no.tflite"], "no.tflite: cannot read the model (No such file or directory)"),
        (["report", "nowhere"], "nowhere: no run found there"),
    ],
)  # fmt: skip
def test_error_is_one_line(odt_sim, folder, arguments, message):
    code, out, err = odt_sim(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {message}")
    assert len(err.splitlines()) == 1
