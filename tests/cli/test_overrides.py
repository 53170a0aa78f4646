"""Overrides: unknown keys, Hydra's errors in one line, and sweeps."""

import pytest

from odt_sim.cli.hydra.overrides import check_overrides, composed, key_and_value, quoted, sweepable
from odt_sim.errors import ConfigurationError
from odt_sim.strategies.base import Strategy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lr=0.05"], "lr: unknown setting; did you mean train.learning_rate or model.lora_rank?; put your own keys"),
        (["-m", "+lr=0.1,0.001"], "lr: unknown setting; did you mean train.learning_rate or model.lora_rank?; put "
                                  "your own keys"),
        (["sed=1"], "sed: unknown setting; did you mean seed"),
        (["+rounds=8"], "rounds: unknown setting; did you mean run.rounds?"),
        (["fleet.device=5"], "fleet.device: unknown setting; did you mean fleet.devices?"),
        (["+train.batch_size=8"], "train.batch_size: unknown setting; did you mean model.batch_size?"),
        (["+training.epochs=8"], "training.epochs: unknown setting; did you mean train.epochs?"),
        (["+model.batchsize=8"], "model.batchsize: unknown setting; did you mean model.batch_size?"),
        (["strategy=ditto", "+strategy.regularisation=1"],
         "strategy.regularisation: unknown setting; did you mean strategy.regularization?"),
        (["strategy.rate=1"], "strategy.rate: unknown setting; expected one of strategy.server_learning_rate, strategy.weig"),
        (["-m", "strategy=ditto,fedprox", "strategy.mu=1,2"], "strategy.mu: unknown setting; "),
        (["+split.of=8"], "split.of: unknown setting; expected one of split.gap, split.method, split.test, split.valid"),
        ([f"strategy._target_={__name__}.Shares", "strategy.shar=1"],
         "strategy.shar: unknown setting; did you mean strategy.share?"),
        (["strategy=fedprix"], "strategy=fedprix: no such option; did you mean fedprox? "),
        (["run.rounds=[1"], "run.rounds: cannot read [1; put text with such characters in a second pair of quotes"),
        (["run.resume=Läufe[1]"], "run.resume: cannot read Läufe[1]; put text with such characters in a second pair "
                                  "of quotes"),
        (["rounds"], "expected KEY=VALUE, found rounds; odt-sim run --help all lists all keys"),
        (["-m", "strategy=[local,fedavg]"], "strategy: expected one option, found a list; sweep by -m strategy=local,fedavg"),
        (["strategy=null"], "strategy: expected an option, found null; "),
        (["backend=-1"], "backend: expected an option, found -1; odt-sim run --help backend lists them"),
        (["backend=[]"], "backend: expected an option, found []; "),
        (
            ["data=function", "data.target=x.y", "data.people=3"],
            "data.people: expected +, since the key is new; use +data.people=...",
        ),
        (["experiment=demo"], "experiment: expected +, since no option is chosen by default; use +experiment=..."),
        (["--rounds", "3"], "--rounds: expected key=value without dashes; did you mean run.rounds?"),
        (["seed=1", "--fleet.devices=3"], "--fleet.devices: expected key=value without dashes; use fleet.devices=..."),
    ],
)  # fmt: skip
def test_override_that_does_not_fit_is_refused_in_one_line(arguments, message):
    with pytest.raises(ConfigurationError) as caught:
        check_overrides(sweepable(arguments), composes=False)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("strategy=fedavg,local", "strategy: found several options; sweep by -m strategy=fedavg,local"),
        (
            "train.epochs=1,2",
            "train.epochs: found several values; sweep by -m train.epochs=1,2, or write a list: train.epochs=[1,2]",
        ),
        ("seed=range(3)", "seed: found several values; sweep by -m seed=range(3)"),
        ("+user.note='a=b',c", "+user.note: found several values; sweep by -m +user.note='a=b',c, or write a list: "),
    ],
)
def test_sweep_without_multirun_advises_the_flag(argument, message):
    with pytest.raises(ConfigurationError) as caught:
        composed([argument])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("argument", "advice"),
    [
        ("strategy=mine.MeanTuned", ", or your own class: strategy._target_=mine.MeanTuned;"),
        ("strategy=Hybrid", ", or your own class: strategy._target_=module.Class;"),
        ("aggregator=mine.Mean", ", or your own class: aggregator._target_=mine.Mean;"),
    ],
)
def test_unknown_option_advises_how_to_name_a_class(argument, advice):
    with pytest.raises(ConfigurationError, match="; choose one of ") as caught:
        composed([argument])
    assert advice in str(caught.value)


class Shares(Strategy):
    def __init__(self, share=0.5):
        self.share = share


@pytest.mark.parametrize(
    "arguments",
    [
        [f"strategy._target_={__name__}.Shares", "strategy.share=0.2"],
        ["-m", f"strategy._target_={__name__}.Shares", "strategy.share=0.2,0.4"],
        ["+user.note=mine", "train.learning_rate=${user.rate}", "+user.rate=0.5"],
        ["-m", "strategy=ditto,mr_mtl", "strategy.regularization=1", "seed=range(3)"],
        ["data=function", "data.target=mine.examples", "+data.count=3"],
        ["strategy._target_=no_such_module.Mine", "+strategy.rate=1"],
        ["+experiment=demo", "hydra.run.dir=here", "--cfg", "job"],
        [],
    ],
)
def test_known_keys_and_own_keys_are_accepted(arguments):
    check_overrides(sweepable(arguments), composes=False)


def test_option_of_a_users_folder_is_checked(tmp_path):
    (tmp_path / "strategy").mkdir()
    (tmp_path / "strategy" / "mine.yaml").write_text(
        "_target_: odt_sim.strategies.averaging.fedprox.FedProx\nmu: 0.1\n"
    )
    assert composed(["strategy=mine", "strategy.mu=2"], str(tmp_path)).strategy.mu == 2
    with pytest.raises(
        ConfigurationError, match=r"^strategy\.nu: unknown setting; did you mean strategy\.mu\?|expected one"
    ):
        check_overrides(["--config-dir", str(tmp_path), "strategy=mine", "+strategy.nu=2"])


def test_option_of_a_users_folder_need_not_name_the_settings_of_its_class(tmp_path):
    (tmp_path / "strategy").mkdir()
    (tmp_path / "strategy" / "mine.yaml").write_text("_target_: odt_sim.strategies.averaging.fedprox.FedProx\n")
    assert composed(["strategy=mine", "strategy.mu=2"], str(tmp_path)).strategy.mu == 2
    misspelt = sweepable(["-m", "--config-dir", str(tmp_path), "strategy=fedprox,mine", "strategy.muu=2"])
    with pytest.raises(ConfigurationError, match=r"^strategy\.muu: unknown setting; did you mean strategy\.mu\?"):
        check_overrides(misspelt)


@pytest.mark.parametrize(
    ("given", "rewritten"),
    [
        ("strategy.mu=1", "strategy.mu=choice(1)"),
        ("+strategy.layers=[1,2]", "+strategy.layers=choice([1,2])"),
        ("strategy.name='a b'", "strategy.name=choice('a b')"),
        ("strategy.mu=0.1,1", "strategy.mu=0.1,1"),
        ("strategy.mu=", "strategy.mu="),
        ("~strategy.mu", "~strategy.mu"),
        ("strategy_of_mine.mu=1", "strategy_of_mine.mu=1"),
        ("train.epochs=2", "train.epochs=2"),
        ("no override", "no override"),
    ],
)
def test_key_of_a_swept_group_becomes_a_choice(given: str, rewritten: str) -> None:
    sweep = ["-m", "strategy=ditto,mr_mtl"]
    assert sweepable([*sweep, given]) == [*sweep, rewritten]


def test_null_is_no_option_of_an_export() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^model: expected an option, found null; odt-sim run --help model lists th"
    ):
        composed(["model=null"])


def test_options_of_an_export_need_no_plus() -> None:
    assert sweepable(["model.embed=true", "+model.head=dense"]) == ["++model.embed=true", "+model.head=dense"]
    assert composed(["model=digits_mlp", "model.embed=true"]).model.embed is True


def test_settings_of_a_users_class_need_no_plus() -> None:
    arguments = ["strategy._target_=odt_sim.strategies.two_models.ditto.Ditto", "strategy.regularization=2"]
    assert sweepable(arguments) == [arguments[0], f"++{arguments[1]}"]
    assert composed(arguments).strategy.regularization == 2


def test_arguments_without_a_swept_group_are_unchanged() -> None:
    for arguments in (
        ["strategy=local,ditto", "strategy.mu=1"],
        ["-m", "strategy=ditto", "seed=0,1", "strategy.mu=1"],
    ):
        assert sweepable(arguments) == arguments


@pytest.mark.parametrize("folder", ["/data/Köln", "/data/R&D; 2", "Übung", "/data/plain"])
def test_text_that_hydra_reads_in_quotes_only_needs_none(folder):
    assert composed([f"run.resume={folder}"]).run.resume == folder
    assert key_and_value(f"run.resume={folder}") == ("run.resume", folder)


def test_each_value_of_a_sweep_is_quoted_by_itself():
    assert quoted("data.path=Köln.csv,Rom.csv") == "data.path='Köln.csv',Rom.csv"
    assert quoted("seed=0,1") == "seed=0,1"
