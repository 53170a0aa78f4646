"""The learning rate and the optimizer of the shipped models."""

from pathlib import Path

import pytest

from odt_sim.cli.commands.run import launch
from odt_sim.cli.hydra import build as config
from odt_sim.cli.hydra.overrides import composed
from odt_sim.device.plan import own_learning_rate
from odt_sim.persistence.run import RunFolder

MODELS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "model").glob("*.yaml"))


OPTIMIZERS = {  # all others: SGD at 0.1
    **dict.fromkeys(("mini_gpt", "transformer_encoder"), ("Adam", {"SGD": 0.1})),
    "transcriber": ("Adam", {"Adam": 0.003}),
    **dict.fromkeys(("next_word", "recommender", "word_tagger"), ("Adam", {"Adam": 0.01})),
    **dict.fromkeys(("labels_mlp", "unet"), ("SGD", {"SGD": 0.5})),
    "character_window": ("SGD", {"SGD": 1.0}),
}


@pytest.mark.parametrize("name", [name for name in MODELS if name != "tflite"])
def test_shipped_models_train_with_sgd_at_a_tenth_or_as_listed(name):
    model = composed([f"model={name}"]).model
    optimizer, rates = OPTIMIZERS.get(name, ("SGD", {"SGD": 0.1}))
    assert model.optimizer.name == optimizer
    assert model.default_rates == rates


@pytest.mark.parametrize(
    ("overrides", "rate", "slots"),
    [
        ([], 0.1, 0),
        (["model.optimizer.name=Adam"], 0.001, 5),
        pytest.param(
            ["model.optimizer.name=Adam", "+model.optimizer.learning_rate=0.01"], 0.01, 5, marks=pytest.mark.slow
        ),
        pytest.param(
            ["+model.optimizer.learning_rate=0.03", "+model.optimizer.momentum=0.9"], 0.03, 2, marks=pytest.mark.slow
        ),
    ],
)
def test_file_carries_the_learning_rate_of_its_optimizer(overrides, rate, slots):
    chosen = composed(["model=softmax", *overrides])
    config.check(chosen)
    model = config.model(chosen)
    assert own_learning_rate(model) == rate
    assert len(model.slots) == slots


@pytest.mark.slow
def test_run_follows_a_schedule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schedule = "{name: CosineDecay, initial_learning_rate: 0.1, decay_steps: 30}"
    overrides = [f"model.optimizer={{name: SGD, learning_rate: {schedule}}}", "strategy=scaffold", "fleet.devices=5"]
    given = ["model=softmax", *overrides, "backend=serial", "run.rounds=3", "hydra.run.dir=run"]
    assert launch(given).failed == 0
    folder = RunFolder(tmp_path / "run")
    assert folder.summary().settings["train.learning_rate"] == "schedule"
    assert folder.summary().metrics["accuracy"]["weighted_mean"] > 0.6
