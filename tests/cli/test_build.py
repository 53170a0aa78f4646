"""From a configuration to objects: what is checked, and what an error says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from odt_sim.cli import build as config
from odt_sim.cli.overrides import composed
from odt_sim.cli.resume import resumed
from odt_sim.errors import ConfigurationError, DataError, ModelError
from odt_sim.strategies.fedavg_finetune import FedAvgFineTune

# --- types of keys -----------------------------------------------------------------------------------------------------


def test_the_shipped_configuration_passes():
    config.check(composed([]))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=0.5", r"^seed: expected a whole number of at least 0, found 0\.5$"),
        ("seed=true", r"^seed: expected a whole number of at least 0, found True$"),
        ("seed=null", r"^seed: expected a whole number of at least 0, found None$"),
        ("~seed", r"^seed: expected in the configuration, found nothing; add it: \+seed=\.\.\.$"),
        ("seed=-1", r"^seed: expected a whole number of at least 0, found -1$"),
        ("run.rounds=many", r"^run\.rounds: expected a whole number of at least 1, found 'many'$"),
        ("run.evaluate_every=0.1", r"^run\.evaluate_every: expected a whole number of at least 1 or null, found 0\.1$"),
        ("run.storage=3", r"^run\.storage: expected text or null, found 3$"),
        ("fleet.cohort=[1,2]", r"^fleet\.cohort: expected a whole number of at least 1 or null, found \[1, 2\]$"),
        ("train.learning_rate=fast", r"^train\.learning_rate: expected a number above 0 or null, found 'fast'$"),
        ("split.test=null", r"^split\.test: expected a number above 0 and below 1, found None$"),
    ],
)
def test_a_value_of_another_type_is_named(override, message):
    with pytest.raises(ConfigurationError, match=message):
        config.check(composed([override]))


def test_a_key_that_a_users_own_group_lacks_is_named():
    """Also one that may be null."""
    given = OmegaConf.to_container(composed([]))
    del given["fleet"]["timeout"]
    message = r"^fleet\.timeout: expected in the configuration, found nothing; add it: \+fleet\.timeout=\.\.\.$"
    with pytest.raises(ConfigurationError, match=message):
        config.check(OmegaConf.create(given))


@pytest.mark.parametrize("override", ["train.learning_rate=1", "fleet.devices=null", "run.evaluate_every=2", "seed=0"])
def test_values_that_fit(override):
    config.check(composed([override]))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+model.batchsize=8", r"^model\.batchsize: there is no such setting; there is model\.batch_size$"),
        ("+training.epochs=8", "^training: there is no such setting; there is train"),
    ],
)
def test_what_nobody_reads_is_named(override, message):
    with pytest.raises(ConfigurationError, match=message):
        config.check(composed([override]))


@pytest.mark.parametrize(
    "overrides",
    [
        ["+learning_rate=0.5", "train.learning_rate=${learning_rate}"],  # which another setting refers to
        ["+note=mine", "+mine.epochs=3"],  # like no setting, and a group
        ["+strategy.epochs=2", "+model.build.width=8", "+model.embed=true"],  # of which others decide
        ["+model.width=8", "model.batch_size=${model.width}"],
    ],
)
def test_names_of_the_users_own_are_left_alone(overrides):
    config.check(composed(overrides))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("sed=1", ["Could not override 'sed'", "+sed=1"]),
        ("strategy.rate=1", ["Could not override 'strategy.rate'"]),
        ("strategy=fedprix", ["'strategy/fedprix'; choose one of ", "fedavg, fedavg_finetune, "]),
        ("run.rounds=[1", ["override 'run.rounds=[1': "]),
        ("rounds", ["Error parsing override 'rounds'; "]),
    ],
)
def test_an_override_that_does_not_fit_is_one_line(override, words):
    with pytest.raises(ConfigurationError) as caught:
        composed([override])
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


# --- building ----------------------------------------------------------------------------------------------------------


def node(**keys):
    return OmegaConf.create(keys)


def test_a_target_is_built_with_its_keys():
    built = config.build(node(_target_="odt_sim.strategies.fedavg_finetune.FedAvgFineTune", max_epochs=3), "strategy")
    assert isinstance(built, FedAvgFineTune)
    assert built.max_epochs == 3


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"_target_": "odt_sim.strategies.fedavg.FedAvg", "rate": 1}, r"^strategy: TypeError: FedAvg\(\) takes no"),
        ({"_target_": "no_such_module.Mine"}, r"^strategy: .*no_such_module"),
        ({"_target_": "odt_sim.strategies.fedavg.Fedavg"}, r"^strategy: .*Fedavg"),
        ({"_target_": "odt_sim.data.sources.npz", "path": "???"}, r"^strategy: Missing mandatory value: path; set it"),
        ({"_target_": "builtins.int", "x": "${no.such.key}"}, r"^strategy: Interpolation key 'no\.such\.key' not found"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_one_line_that_names_the_key(keys, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        config.build(node(**keys), "strategy")
    assert "\n" not in str(caught.value)


def test_a_group_that_is_no_group_is_one_line():
    with pytest.raises(ConfigurationError, match=r"^strategy: expected a group of settings, found None; choose one: "):
        config.build(None, "strategy")


def test_a_targets_own_error_passes_through():
    with pytest.raises(
        ConfigurationError, match=r"^strategy\.max_epochs: expected a whole number, at least 0, found -1$"
    ):
        config.build(node(_target_="odt_sim.strategies.fedavg_finetune.FedAvgFineTune", max_epochs=-1), "strategy")
    with pytest.raises(DataError, match=r"^data no\.npz: no such file"):
        config.build(node(_target_="odt_sim.data.sources.npz", path="no.npz"), "data")


def test_what_a_users_function_raises_says_its_type(tmp_path):
    (tmp_path / "mine.py").write_text("def examples():\n    return {}['x']\n")
    built = node(_target_="odt_sim.data.sources.function", target=f"{tmp_path / 'mine.py'}:examples")
    with pytest.raises(
        DataError, match=r"^data \S+:examples: failed with KeyError: 'x' \(\S+mine\.py:2\); correct it$"
    ):
        config.build(built, "data")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["partition.alpha=abc"], r"^partition\.alpha: expected a number, found 'abc'$"),
        (["partition.alpha=null"], r"^partition\.alpha: expected a number, found None$"),
        (["partition.min_examples=1.5"], r"^partition\.min_examples: expected a whole number, found 1\.5$"),
        (
            ["partition=pathological", "partition.classes_per_device=two"],
            r"^partition\.classes_per_device: expected a whole number, found 'two'$",
        ),
        (["partition=iid", "+partition.alpha=1"], r"^partition: failed with TypeError: .*'alpha'; correct it$"),
        (
            ["partition=iid", "partition._target_=parting.halves"],
            r"^partition: .* ZeroDivisionError: .*parting\.py:2\)",
        ),
    ],
)
def test_a_partition_that_cannot_be_made_is_one_line(overrides, message, tmp_path, monkeypatch):
    (tmp_path / "parting.py").write_text("def halves(dataset, devices, seed):\n    return devices / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=message) as caught:
        config.federated(composed(overrides))
    assert "\n" not in str(caught.value)


# --- models ------------------------------------------------------------------------------------------------------------


def test_a_file_is_loaded_as_it_is(tmp_path, softmax):
    path = tmp_path / "model.tflite"
    path.write_bytes(softmax.content)
    loaded = config.model(composed(["model=tflite", f"model.path={path}"]))
    assert loaded.fingerprint == softmax.fingerprint


def test_a_missing_path_is_named():
    with pytest.raises(ConfigurationError, match=r"^model: Missing mandatory value: path; set it: model\.path=\.\.\.$"):
        config.model(composed(["model=tflite"]))


def test_a_file_that_is_not_there():
    with pytest.raises(ModelError, match=r"^no\.tflite: cannot read the model"):
        config.model(composed(["model=tflite", "model.path=no.tflite"]))


def test_work_beside_gives_its_result_or_its_error():
    assert config._beside(lambda: 3)() == 3
    with pytest.raises(ZeroDivisionError):
        config._beside(lambda: 1 / 0)()


# --- going on ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "run"
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("- strategy=fedper\n- seed=3\n")
    sources = [{"path": "odt_sim.conf", "provider": "main"}, {"path": "/my/conf", "provider": "command-line"}]
    OmegaConf.save({"hydra": {"runtime": {"config_sources": sources}}}, folder / ".hydra" / "hydra.yaml")
    return folder


@pytest.mark.parametrize("quote", ["{}", "'{}'"])
def test_the_overrides_of_the_run_come_first(kept, quote):
    given = f"run.resume={quote.format(kept)}"
    expected = ["--config-dir=/my/conf", "strategy=fedper", "seed=3", given, "run.rounds=9", "hydra.mode=RUN"]
    assert resumed([given, "run.rounds=9"]) == expected


def test_a_folder_of_configurations_that_is_given_is_taken(kept):
    given = ["--config-dir", "moved", f"run.resume={kept}"]
    assert resumed(given) == ["strategy=fedper", "seed=3", *given, "hydra.mode=RUN"]


@pytest.mark.parametrize("arguments", [[], ["seed=1"], ["run.resume=null"], ["run.resume="], ["-m", "seed=1,2"]])
def test_nothing_to_go_on_with(arguments):
    assert resumed(arguments) == arguments


def test_a_sweep_is_not_resumed(kept):
    with pytest.raises(ConfigurationError, match=r"^run\.resume: goes on with a single run, .*leave -m out$"):
        resumed(["-m", f"run.resume={kept}"])


def test_a_folder_of_no_run(tmp_path):
    with pytest.raises(ConfigurationError, match=rf"^run\.resume: {tmp_path} is no folder of a run; give one"):
        resumed([f"run.resume={tmp_path}"])


def test_the_working_folder_is_searched_first(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", ["/elsewhere"])
    monkeypatch.chdir(tmp_path)
    config.add_working_folder()
    config.add_working_folder()
    import sys

    assert sys.path == [str(Path.cwd()), "/elsewhere"]


def test_a_drift_of_the_users_own_is_told_with_its_settings(monkeypatch):
    def noise(data, seed, *, sd):
        return replace(data, x=data.x + np.float32(sd))

    monkeypatch.setattr("odt_sim.data.drift.noise", noise, raising=False)
    data = config.federated(composed(["drift._target_=odt_sim.data.drift.noise", "+drift.sd=2"]))
    assert data.spread.endswith(" drift=noise sd=2")
