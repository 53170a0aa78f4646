"""Checks of a configuration, and the objects that are built from it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, ListConfig, OmegaConf

from odt_sim._support.user_code import imported
from odt_sim.cli.commands.resume import resumed
from odt_sim.cli.hydra import build as config
from odt_sim.cli.hydra.components import build
from odt_sim.cli.hydra.keys import check_keys
from odt_sim.cli.hydra.overrides import composed
from odt_sim.cli.hydra.saved_config import saved_config
from odt_sim.errors import ConfigurationError, DataError, ModelError
from odt_sim.strategies.averaging.fedavg_finetune import FedAvgFineTune
from odt_sim.strategies.averaging.local import Local
from odt_sim.strategies.base import Strategy

# --- settings ----------------------------------------------------------------------------------------------------------


def test_shipped_configuration_passes():
    config.check(composed([]))


def test_saved_configuration_of_an_earlier_version_has_the_defaults_of_what_it_lacks(tmp_path):
    earlier = OmegaConf.create(OmegaConf.to_container(composed(["fleet.devices=7"])))
    del earlier["arrival"], earlier["attack"], earlier.fleet["hostile"]
    earlier.strategy._target_ = "odt_sim.strategies.fedavg.FedAvg"  # before strategies stood in folders
    earlier.data._target_, earlier.drift._target_ = "odt_sim.data.sources.digits", "odt_sim.data.drift.none"
    (tmp_path / ".hydra").mkdir()
    OmegaConf.save(earlier, tmp_path / ".hydra" / "config.yaml")
    found = saved_config(tmp_path)
    assert found == composed(["fleet.devices=7"])
    config.check(found)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=0.5", r"^seed: expected a whole number of at least 0, found 0\.5$"),
        ("seed=null", r"^seed: expected a whole number of at least 0, found None$"),
        ("run.rounds=many", r"^run\.rounds: expected a whole number of at least 1, found 'many'$"),
        ("train.learning_rate=fast", r"^train\.learning_rate: expected a number above 0 or null, found 'fast'$"),
        ("model.batch_size=2.5", r"^model\.batch_size: expected a whole number of at least 1 or null, found 2\.5$"),
        ("model.build=null", r"^model\.build: expected a mapping, found None$"),
        ("+run.colour=3", r"^run\.colour: unknown setting; expected one of run\.budget, "),
    ],
)
def test_value_or_key_that_does_not_fit_is_refused(override, message):
    with pytest.raises(ConfigurationError, match=message):
        config.check(composed([override]))


def test_two_learning_rates_are_refused_with_how_to_clear_one():
    message = r"found 0\.3; keep one of the two, such as with model\.optimizer\.learning_rate=null$"
    with pytest.raises(ConfigurationError, match=message):
        config.check(composed(["train.learning_rate=0.3", "model.optimizer.learning_rate=0.1"]))
    config.check(composed(["train.learning_rate=0.3", "model.optimizer.learning_rate=null"]))


def test_missing_setting_has_its_default():
    given = OmegaConf.to_container(composed([]))
    del given["fleet"]["timeout"]
    config.check(OmegaConf.create(given))


def test_own_keys_under_user_may_be_referred_to():
    chosen = composed(["+user.note=mine", "+user.passes=3", "train.epochs=${user.passes}", "+model.embed=true"])
    config.check(chosen)
    assert chosen.train.epochs == 3


# --- building ----------------------------------------------------------------------------------------------------------


def node(**keys):
    return OmegaConf.create(keys)


class OwnSettings(Strategy):
    def __init__(self, share=0.5):
        self.share = share


class Demanding(Strategy):
    def __init__(self, share):
        self.share = share


def test_class_of_the_user_need_not_take_the_averaging_of_fedavg():
    given = [f"strategy._target_={__name__}.OwnSettings", "strategy.share=0.2"]
    chosen = composed(given).strategy
    assert chosen.weighting == "by_examples"
    assert build(chosen, "strategy").share == 0.2
    with pytest.raises(
        ConfigurationError, match=r"^strategy\.weighting: unknown setting; expected one of strategy\.share$"
    ):
        build(composed([*given, "strategy.weighting=uniform"]).strategy, "strategy")


def by_turns(dataset, devices, seed, width=2):
    return [range(device, 6 * width, devices) for device in range(devices)]


def test_partition_of_the_user_need_not_take_the_settings_of_dirichlet():
    given = [f"partition._target_={__name__}.by_turns", "partition.width=1"]
    check_keys(composed(given))
    assert [*build(composed(given).partition, "partition")(None, 3, 0)[0]] == [0, 3]
    with pytest.raises(
        ConfigurationError, match=r"^partition\.alpha: unknown setting; expected one of partition\.width$"
    ):
        build(composed([*given, "partition.alpha=1"]).partition, "partition")


def test_averaging_is_checked():
    built = build(composed(["strategy.weighting=uniform", "strategy.server_learning_rate=0.5"]).strategy, "strategy")
    assert (built.weighting, built.server_learning_rate) == ("uniform", 0.5)
    with pytest.raises(
        ConfigurationError, match=r"^strategy\.weighting: expected by_examples or uniform, found 'equal'$"
    ):
        build(composed(["strategy.weighting=equal"]).strategy, "strategy")


def test_component_is_built_with_its_settings():
    built = build(
        node(_target_="odt_sim.strategies.averaging.fedavg_finetune.FedAvgFineTune", max_epochs=3), "strategy"
    )
    assert isinstance(built, FedAvgFineTune)
    assert built.max_epochs == 3


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"_target_": "odt_sim.strategies.averaging.local.Local", "rate": 1},
            r"^strategy\.rate: unknown setting; the chosen strategy has no settings$",
        ),
        (
            {"_target_": "odt_sim.strategies.two_models.ditto.Ditto", "regularisation": 1},
            r"^strategy\.regularisation: unknown setting; did you mean strategy\.regularization\?$",
        ),
        (
            {"_target_": "odt_sim.strategies.two_models.ditto.Ditto", "regularization": "x"},
            r"^strategy\.regularization: expected a number, found 'x'$",
        ),
        (
            {"_target_": "collections.OrderedDict"},
            r"^strategy\._target_: expected a target that creates Strategy, found collections\.OrderedDict, which creates ",
        ),
        (
            {"_target_": f"{__name__}.Demanding"},
            r"^strategy: .*\.Demanding requires 'share'; set it: strategy\.share=\.\.\.$",
        ),
        ({"_target_": -1}, r"^strategy\._target_: expected module\.name, found -1$"),
        ({"_target_": "no_such_module.Mine"}, r"^strategy\._target_: cannot import no_such_module \(ModuleNotFoundError: "),
        (
            {"_target_": "odt_sim.strategies.averaging.fedavg.Fedavg"},
            r"^strategy\._target_: odt_sim\.strategies\.averaging\.fedavg has no 'Fedavg'; check the name$",
        ),
        ({"_target_": "odt_sim.data.npz", "path": "???"}, r"^strategy: Missing mandatory value: path; set it"),
        ({"_target_": "builtins.int", "x": "${no.such.key}"}, r"^strategy: Interpolation key 'no\.such\.key' not found"),
    ],
)  # fmt: skip
def test_component_that_cannot_be_built_is_refused_in_one_line(keys, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        build(node(**keys), "strategy")
    assert "\n" not in str(caught.value)


def test_name_within_a_class_is_found():
    assert imported("odt_sim.strategies.averaging.local.Local.local", "callbacks") is Local.local
    with pytest.raises(ConfigurationError, match=r"^callbacks: odt_sim\.strategies has no 'nowhere'; check the name$"):
        imported("odt_sim.strategies.nowhere.Local", "callbacks")


class KeepsItsSettings(Local):
    """A strategy of the user with a list and a mapping as settings."""

    def __init__(self, parts: object, named: object) -> None:
        super().__init__()
        self.kinds = type(parts), type(named), type(named["inner"])


def test_component_gets_plain_lists_and_mappings():
    node = OmegaConf.create({"_target_": f"{__name__}.KeepsItsSettings", "parts": [1, 2], "named": {"inner": {"a": 1}}})
    assert build(node, "strategy").kinds == (list, dict, dict)
    node["_convert_"] = "none"
    assert build(node, "strategy").kinds == (ListConfig, DictConfig, DictConfig)


def test_null_group_is_refused():
    with pytest.raises(ConfigurationError, match=r"^strategy: expected a group of settings, found None; choose one: "):
        build(None, "strategy")


def test_error_of_a_component_passes_through():
    with pytest.raises(
        ConfigurationError, match=r"^strategy\.max_epochs: expected a whole number of at least 0, found -1$"
    ):
        build(node(_target_="odt_sim.strategies.averaging.fedavg_finetune.FedAvgFineTune", max_epochs=-1), "strategy")
    with pytest.raises(DataError, match=r"^data no\.npz: no such file"):
        build(node(_target_="odt_sim.data.sources.builtin.npz", path="no.npz"), "data")


def test_error_of_a_data_function_names_its_type_and_line(tmp_path):
    (tmp_path / "mine.py").write_text("def examples():\n    return {}['x']\n")
    built = node(_target_="odt_sim.data.sources.builtin.function", target=f"{tmp_path / 'mine.py'}:examples")
    with pytest.raises(
        DataError, match=r"^data \S+:examples: failed with KeyError: 'x' \(\S+mine\.py:2\); correct it$"
    ):
        build(built, "data")


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
        (["partition=iid", "+partition.alpha=1"], r"^partition\.alpha: unknown setting; the chosen partition"),
        (
            ["partition=iid", "partition._target_=parting.halves"],
            r"^partition: .* ZeroDivisionError: .*parting\.py:2\)",
        ),
    ],
)
def test_partition_that_fails_is_refused_in_one_line(overrides, message, tmp_path, monkeypatch):
    (tmp_path / "parting.py").write_text("def halves(dataset, devices, seed):\n    return devices / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=message) as caught:
        config.federated(composed(overrides))
    assert "\n" not in str(caught.value)


def test_metric_with_settings_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"^metrics: expected names of functions, such as mine\.f1, found {'_tar"
    ):
        config.compares_upwards(composed(["metrics=[{_target_: mine.f1, _partial_: true}]"]))


# --- models ------------------------------------------------------------------------------------------------------------


def test_tflite_file_is_loaded_unchanged(tmp_path, softmax):
    path = tmp_path / "model.tflite"
    path.write_bytes(softmax.content)
    loaded = config.model(composed(["model=tflite", f"model.path={path}"]))
    assert loaded.fingerprint == softmax.fingerprint


def test_missing_path_is_named():
    with pytest.raises(ConfigurationError, match=r"^model: Missing mandatory value: path; set it: model\.path=\.\.\.$"):
        config.model(composed(["model=tflite"]))


def test_missing_model_file_is_named():
    with pytest.raises(ModelError, match=r"^no\.tflite: cannot read the model"):
        config.model(composed(["model=tflite", "model.path=no.tflite"]))


def test_background_work_gives_its_result_or_error():
    assert config.in_daemon_thread(lambda: 3).result() == 3
    with pytest.raises(ZeroDivisionError):
        config.in_daemon_thread(lambda: 1 / 0).result()


# --- resuming ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "run"
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("- strategy=fedper\n- seed=3\n")
    sources = [{"path": "odt_sim.conf", "provider": "main"}, {"path": "/my/conf", "provider": "command-line"}]
    OmegaConf.save({"hydra": {"runtime": {"config_sources": sources}}}, folder / ".hydra" / "hydra.yaml")
    return folder


@pytest.mark.parametrize("quote", ["{}", "'{}'"])
def test_overrides_of_the_run_come_first(kept, quote):
    given = f"run.resume={quote.format(kept)}"
    expected = ["--config-dir=/my/conf", "strategy=fedper", "seed=3", given, "run.rounds=9", "hydra.mode=RUN"]
    assert resumed([given, "run.rounds=9"]) == expected


@pytest.mark.parametrize("folder", [["--config-dir", "moved"], ["hydra.searchpath=[file://moved]"]])
def test_given_config_folder_replaces_the_recorded_one(kept, folder):
    given = [*folder, f"run.resume={kept}"]
    assert resumed(given) == ["strategy=fedper", "seed=3", *given, "hydra.mode=RUN"]


@pytest.mark.parametrize("arguments", [[], ["seed=1"], ["run.resume=null"], ["run.resume="], ["-m", "seed=1,2"]])
def test_arguments_without_a_run_are_unchanged(arguments):
    assert resumed(arguments) == arguments


def test_run_is_not_resumed_as_a_sweep(kept):
    with pytest.raises(ConfigurationError, match=r"^run\.resume: .* is not the folder of a sweep; with -m"):
        resumed(["-m", f"run.resume={kept}"])


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=rf"^run\.resume: {tmp_path} is not the folder of a run or a sweep; "):
        resumed([f"run.resume={tmp_path}"])


def test_working_folder_is_searched_first(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", ["/elsewhere"])
    monkeypatch.chdir(tmp_path)
    config.add_working_folder()
    config.add_working_folder()
    import sys

    assert sys.path == [str(Path.cwd()), "/elsewhere"]


def test_settings_of_a_users_drift_are_recorded(monkeypatch):
    def noise(data, seed, *, sd):
        return replace(data, x=data.x + np.float32(sd))

    monkeypatch.setattr("odt_sim.data.devices.drift.noise", noise, raising=False)
    data = config.federated(composed(["drift._target_=odt_sim.data.devices.drift.noise", "+drift.sd=2"]))
    assert data.spread.endswith(" drift=noise sd=2")
