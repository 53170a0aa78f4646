"""Damaged configurations, of the user or saved with a run: the command runs, or reports one line."""

import shutil
from pathlib import Path

import pytest
from mutations import BYTES, Random, mutated

from odt_sim.cli.main import main
from odt_sim.errors import OdtSimError

pytestmark = pytest.mark.slow

OWN = """# @package _global_
defaults:
  - override /model: softmax
  - override /strategy: fedavg_finetune
  - override /backend: serial
run:
  evaluate_every: 1
fleet:
  min_devices: 1
train:
  learning_rate: 0.1
  epochs: 1
strategy:
  max_epochs: 2
"""
SMALL = ["model=softmax", "backend=serial", "run.rounds=1", "fleet.devices=3", "fleet.unseen=0"]
"""What an emptied configuration must not leave to the default one, which is a longer run."""

RUN = ["run", "--config-dir=own", "+experiment=own", *SMALL]
PIECES = (
    *("!!python/object/apply:os.mkdir [pwned]", "!!python/name:os.system", "&a [*a, *a]", "*unknown", "${oc.env:HOME}"),
    *(
        "${run}",
        "${unknown:1}",
        "[" * 500,
        "{",
        "- " * 300,
        "? ",
        "\t",
        "\0",
        "'",
        '"',
        "null",
        "-1",
        "1e999",
        ".nan",
        "yes",
    ),
    *(
        "0x",
        "defaults:",
        "run:",
        "???",
        "<<: 1",
        "_target_: no.such",
        "é",
        "%YAML 9.9\n---",
        "--- \n---\n",
        ": ",
        "#",
        "\n",
    ),
)
"""What means something in YAML, or in OmegaConf's use of it."""


def put_piece(content: bytearray, random: Random, others: object) -> None:
    """Append a piece to a word, or replace a value by it."""
    places = [i for i, byte in enumerate(content) if byte in b" \n:"]
    place = places[int(random.integers(len(places)))] if places else 0
    end = content.find(b"\n", place) if random.integers(2) else place
    content[place : max(place, end)] = PIECES[int(random.integers(len(PIECES)))].encode()


KINDS = (*BYTES, put_piece, put_piece, put_piece)


@pytest.fixture
def folder(tmp_path, monkeypatch, softmax) -> Path:
    """A working folder with a user's configuration and a finished run; the model is exported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    (tmp_path / "own" / "experiment" / "own.yaml").write_text(OWN)
    assert main([*RUN, "hydra.run.dir=earlier"]) == 0
    return tmp_path


def said(arguments, capfd):
    """Run the command and return the error in its last line."""
    capfd.readouterr()
    code = main(arguments)
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    if code == 0:
        return "ran"
    assert code == 1
    assert err.splitlines()[-1].startswith("error: "), err
    raise OdtSimError(err.splitlines()[-1])


def test_damaged_configuration_runs_or_is_refused_in_one_line(folder, many, outcomes, capfd):
    own, earlier = folder / "own" / "experiment" / "own.yaml", folder / "earlier" / ".hydra"
    cases = [
        (own, [*RUN, "hydra.run.dir=out"]),
        (earlier / "overrides.yaml", ["run", "run.resume=earlier", *SMALL]),
        (earlier / "hydra.yaml", ["run", "run.resume=earlier", *SMALL]),
    ]
    for case in range(many(18, 500)):
        path, arguments = cases[case // len(KINDS) % len(cases)]
        whole = path.read_bytes()
        path.write_bytes(mutated(case, [whole], KINDS))
        outcomes.of((case, path.name), lambda arguments=arguments: said(arguments, capfd))
        path.write_bytes(whole)
        shutil.rmtree(folder / "out", ignore_errors=True)
        assert {entry.name for entry in folder.iterdir()} <= {"own", "earlier"}, case
