"""How often a command composes the configuration, and by which parser."""

import pytest
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf._utils import get_yaml_loader

from odt_sim.cli.libyaml import use_libyaml


@pytest.fixture
def compositions(monkeypatch):
    """The overrides of each composition."""
    made, load = [], ConfigLoaderImpl.load_configuration

    def load_configuration(*arguments, **named):
        made.append(list(named["overrides"]))
        return load(*arguments, **named)

    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", load_configuration)
    return made


@pytest.mark.parametrize(
    ("given", "times"),
    [
        (["model=softmax"], 1),
        (["model=softmax", "strategy=local", "train.epochs=2"], 1),
        (["model=softmax", "hydra.run.dir=here"], 2),  # an override may set hydra.mode
    ],
)
def test_run_composes_once_unless_the_mode_may_be_set(run, folder, compositions, given, times):
    assert run(*given, "run.rounds=1", "backend=serial")[0] == 0
    assert len(compositions) == times


@pytest.mark.parametrize(
    "given",
    [["+experiment=searched"], ["hydra.mode=MULTIRUN", "strategy=local,fedavg"], ["-m", "strategy=local,fedavg"]],
)
def test_sweep_by_flag_override_or_option_stays_a_sweep(run, folder, monkeypatch, given):
    modes = []
    monkeypatch.setattr(Hydra, "run", lambda self, **_: modes.append(RunMode.RUN))
    monkeypatch.setattr(Hydra, "multirun", lambda self, **_: modes.append(RunMode.MULTIRUN))
    (folder / "own" / "experiment").mkdir(parents=True)
    (folder / "own" / "experiment" / "searched.yaml").write_text(
        "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      strategy: local,fedavg\n"
    )
    run("--config-dir=own", *given)
    assert modes == [RunMode.MULTIRUN]


def test_option_of_a_users_folder_may_set_the_mode(run, folder, monkeypatch):
    modes = []
    monkeypatch.setattr(Hydra, "multirun", lambda self, **_: modes.append(RunMode.MULTIRUN))
    (folder / "own" / "strategy").mkdir(parents=True)
    (folder / "own" / "strategy" / "both.yaml").write_text(
        "# @package _global_\nhydra:\n  mode: MULTIRUN\nstrategy:\n  _target_: odt_sim.strategies.local.Local\n"
    )
    run("--config-dir=own", "strategy=both")
    assert modes == [RunMode.MULTIRUN]


def test_libyaml_reads_the_values_of_pyyaml(tmp_path):
    values = "[1, 1e-3, .inf, null, yes, 'x: y', ~, 2020-01-01, 0x1f, 1_000]"
    text = f'a: {values}\nb: {{Köln: "\\u00e9 😀"}}\nc: |\n  two\n  lines\n'
    use_libyaml()
    if yaml.__with_libyaml__:
        assert issubclass(get_yaml_loader(), yaml.CSafeLoader)
    (tmp_path / "a.yaml").write_text(text)
    before = yaml.load(text, Loader=yaml.loader.SafeLoader)
    assert yaml.safe_load(text) == before
    assert OmegaConf.load(tmp_path / "a.yaml").a[1] == 0.001
    assert {**OmegaConf.load(tmp_path / "a.yaml"), "a": 0} == {**before, "a": 0}


def test_damaged_option_is_one_line(run, folder):
    (folder / "own" / "strategy").mkdir(parents=True)
    (folder / "own" / "strategy" / "bad.yaml").write_text("a: [1\nb: }")
    code, err = run("--config-dir=own", "strategy=bad")
    assert code == 1
    assert err.count("\n") == 1
    assert "bad.yaml" in err


def test_unknown_key_of_a_run_takes_one_further_composition(run, folder, compositions):
    code, err = run("run.round=3", "strategy=local")
    assert (code, err) == (1, "error: run.round: unknown setting; did you mean run.rounds?\n")
    assert [each for each in compositions if "run.round=3" in each] == compositions[:1]
    assert len(compositions) == 2


def test_report_reads_runs_by_libyaml(odt_sim, folder, monkeypatch):
    monkeypatch.setattr(yaml, "SafeLoader", yaml.loader.SafeLoader)
    assert odt_sim("report", "nothing")[0] == 1
    assert yaml.SafeLoader is getattr(yaml, "CSafeLoader", yaml.loader.SafeLoader)
