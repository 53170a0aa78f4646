"""A device follows a schedule, averages and accumulates as Keras' own training does."""

import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, optimizers
from parity.fine_tuning import adapted

from odt_sim.device.device import Device
from odt_sim.device.plan import TrainingPlan
from odt_sim.device.runtime import Runtime
from odt_sim.errors import ExportError, ExportWarning
from odt_sim.export import export_model
from odt_sim.export.emit.signatures import Program, emit_signatures
from odt_sim.export.keras.optimizers import optimizer_of, schedule_of, settings_of
from odt_sim.export.keras.parameters import all_layers
from odt_sim.export.keras.steps import trace_schedule
from odt_sim.model.editing.initial_weights import with_initial_weights
from odt_sim.model.trainable import TrainableModel

schedules = optimizers.schedules


class Ramp(schedules.LearningRateSchedule):  # type: ignore[misc]  # Keras has no types
    """A schedule of a user, without a config."""

    def __call__(self, step: Any) -> Any:
        return 0.02 * keras.ops.minimum(keras.ops.cast(step, "float32") + 1.0, 4.0)


class Halved(optimizers.SGD):  # type: ignore[misc]
    """An optimizer of a user."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(gradient * 0.5, variable, learning_rate)


def adam() -> Any:
    chosen = optimizers.Adam(
        Ramp(), use_ema=True, ema_momentum=0.5, gradient_accumulation_steps=2, weight_decay=0.1, clipnorm=1.0
    )
    chosen.exclude_from_weight_decay(var_names=["bias"])
    return chosen


def perceptron() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3)])


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> TrainableModel:
    """A perceptron under Adam with a schedule, averages, accumulation, decay and clipping."""
    path = tmp_path_factory.mktemp("options") / "averaged.tflite"
    return TrainableModel.load(export_model(perceptron(), path, loss="mse", optimizer=adam(), batch_size=4))


def device_of(model: TrainableModel, **settings: Any) -> Device:
    random = np.random.default_rng(5)
    rows = random.normal(size=(11, 6)).astype(np.float32), random.normal(size=(11, 3)).astype(np.float32)
    return Device(model, rows, **settings)


def test_a_training_ends_as_fit_of_keras_does(averaged: TrainableModel, tmp_path: Path) -> None:
    device, model, optimizer = device_of(averaged, plan=TrainingPlan(epochs=3)), perceptron(), adam()
    model.compile(optimizer, "mse", run_eagerly=True)
    optimizer.build(model.trainable_variables)
    parts = [device_of(averaged).batches(TrainingPlan(epochs=1), purpose) for purpose in ("batches", "second")]
    for batch in (
        batch for part in parts for batch in part
    ):  # nine calls of Adam's accumulator, five of them unapplied
        device.train_step(batch)
        model.train_on_batch(batch.x, batch.y, sample_weight=batch.sample_weight)
    device.save(tmp_path / "before.ckpt")
    device.finish()
    raw = [v.numpy() for v in model.trainable_variables]
    optimizer.finalize_variable_values(model.trainable_variables)
    for found, expected, other in zip(device.weights.tensors(), model.trainable_variables, raw, strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-7)
        assert np.abs(expected.numpy() - other).max() > 1e-3  # the averages differ from the weights

    again = device_of(averaged, plan=TrainingPlan(epochs=3))
    again.restore(str(tmp_path / "before.ckpt"))
    assert again.learning_rate() == device.learning_rate()
    again.finish()
    np.testing.assert_array_equal(again.weights.vector, device.weights.vector)


def test_train_follows_the_schedule_and_finishes(averaged: TrainableModel) -> None:
    trained, stepped = device_of(averaged), device_of(averaged)
    trained.train()
    for batch in stepped.batches():
        stepped.train_step(batch)
    stepped.finish()
    np.testing.assert_array_equal(trained.weights.vector, stepped.weights.vector)
    assert trained.learning_rate() == pytest.approx(0.08)  # that of the fourth step
    trained.begin_again()
    assert trained.learning_rate() == pytest.approx(0.02)


def test_rounds_continue_the_schedule(averaged: TrainableModel) -> None:
    """A round has three steps here; a straggler's shorter plan changes no step's number."""
    rates = [device_of(averaged, round=round).learning_rate() for round in (0, 1, 2, 3)]
    assert rates == pytest.approx([0.02, 0.02, 0.08, 0.08])
    fixed = device_of(averaged, round=2, plan=TrainingPlan(learning_rate=0.5))
    assert (fixed.learning_rate(), fixed.learning_rate(0.25)) == (0.5, 0.25)


def test_sum_of_rates(averaged: TrainableModel) -> None:
    device = device_of(averaged)
    device.train()
    assert device.sum_of_rates(3) == pytest.approx(0.02 + 0.04 + 0.06)
    assert device_of(averaged, plan=TrainingPlan(learning_rate=0.5)).sum_of_rates(3) == 1.5
    decayed = device_of(averaged, round=2, plan=TrainingPlan(learning_rate_decay=0.5))
    rates = [decayed.learning_rate()]
    decayed.train_step(next(decayed.batches()))
    assert decayed.sum_of_rates(1) == rates[0] == pytest.approx(0.04)


def test_manifest_describes_the_options(averaged: TrainableModel) -> None:
    assert averaged.manifest is not None
    settings = averaged.manifest.optimizer
    assert settings["learning_rate"] == pytest.approx(0.02)
    assert settings["schedule"] == {"name": "Ramp"}
    assert settings["exclude_from_weight_decay"] == ["bias"]
    assert not averaged.manifest.plain_sgd


SCHEDULES = [
    {"name": "CosineDecay", "initial_learning_rate": 0.0, "decay_steps": 4, "warmup_target": 0.1, "warmup_steps": 3},
    {"name": "CosineDecayRestarts", "initial_learning_rate": 0.1, "first_decay_steps": 3},
    {"name": "ExponentialDecay", "initial_learning_rate": 0.1, "decay_steps": 3, "decay_rate": 0.5, "staircase": True},
    {"name": "InverseTimeDecay", "initial_learning_rate": 0.1, "decay_steps": 3, "decay_rate": 0.5},
    {"name": "PolynomialDecay", "initial_learning_rate": 0.1, "decay_steps": 4, "power": 2.0, "cycle": True},
    {"name": "PiecewiseConstantDecay", "boundaries": [2, 5], "values": [0.1, 0.05, 0.01]},
    {"name": f"{__name__}.Ramp"},
]


@pytest.mark.parametrize("settings", SCHEDULES, ids=[str(settings["name"]) for settings in SCHEDULES])
def test_schedules_from_settings_are_those_of_keras(settings: dict[str, Any]) -> None:
    given = {"name": "SGD", "learning_rate": settings}
    schedule = schedule_of(given)
    assert schedule is not None
    emitted = emit_signatures(Program({"schedule": trace_schedule(schedule)}, weights=())).functions["schedule"]
    expected = [float(schedule(np.int64(step))) for step in range(9)]
    found = [float(emitted(tf.constant(step))["learning_rate"]) for step in range(9)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert settings_of(optimizer_of(given), schedule)["learning_rate"] == pytest.approx(expected[0])


def test_optimizer_that_keras_does_not_look_up_has_its_name() -> None:
    found = optimizer_of({"name": "Lamb", "learning_rate": 0.25})
    assert type(found) is optimizers.Lamb
    assert float(found.learning_rate) == 0.25


def test_optimizers_from_settings() -> None:
    own = optimizer_of(
        {"name": f"{__name__}.Halved", "learning_rate": 0.2, "exclude_from_weight_decay": ["bias", "gamma"]}
    )
    assert type(own) is Halved
    assert settings_of(own)["exclude_from_weight_decay"] == ["bias", "gamma"]
    with pytest.warns(ExportWarning, match=r"LossScaleOptimizer is exported as its inner optimizer"):
        assert type(optimizer_of(optimizers.LossScaleOptimizer(optimizers.Lion()))) is optimizers.Lion
    with pytest.warns(ExportWarning):
        assert (
            type(optimizer_of({"name": "LossScaleOptimizer", "inner_optimizer": {"name": "Lion"}})) is optimizers.Lion
        )


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            {"name": "SGD", "learning_rate": {"name": "Cosine"}},
            r"learning_rate\.name: expected CosineDecay, ",
        ),
        (
            {"name": "SGD", "learning_rate": {"name": ""}},
            r"learning_rate\.name: expected CosineDecay, .*, or the path of your own class, found none$",
        ),
        ({"name": "SGD", "learning_rate": {"name": "CosineDecay"}}, r"learning_rate: CosineDecay does not accept"),
        ({"name": "no_such.Optimizer"}, r"no_such\.Optimizer: cannot be imported"),
        ({"name": "collections.OrderedDict"}, r"expected a subclass of keras' Optimizer"),
        (optimizers.SGD(lambda: 0.1), r"expected a number or a keras.*LearningRateSchedule .* found function"),
        (
            optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizers.SGD())),
            r"has no single learning rate; use one optimizer",
        ),
        (
            optimizers.SGD(clipnorm=-1.0),
            r"optimizer SGD: clipnorm: expected a number of at least 0, found -1\.0; correct it",
        ),
        ({"name": "SGD", "global_clipnorm": -1}, r"global_clipnorm: expected .* found -1;"),
        ({"name": "Adam", "clipvalue": -1, "beta_1": 0.5}, r"clipvalue: expected .* found -1;"),
        ({"name": "AdamW", "weight_decay": -0.1}, r"weight_decay: expected .* found -0\.1;"),
        ({"name": "Adam", "beta_2": 1.0}, r"beta_2: expected a number of at least 0 and below 1, found 1\.0;"),
        ({"name": "SGD", "learning_rate": float("nan")}, r"learning_rate: expected .* found nan;"),
    ],
)
def test_optimizers_are_refused(optimizer: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message) as error:
        optimizer_of(optimizer)
    assert "\n" not in str(error.value)


def test_names_of_an_optimizer_of_ones_own_have_its_own_ranges() -> None:
    class Sharpness(optimizers.SGD):
        rho = 2.0

    assert isinstance(optimizer_of(Sharpness(0.1)), Sharpness)


@pytest.mark.parametrize(("activation", "warned"), [(None, 1), ("softmax", 0)])
def test_probabilities_expected_of_logits_are_warned_of(activation: str | None, warned: int, tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((6,)), layers.Dense(3, activation)])
    model.compile("sgd", "sparse_categorical_crossentropy")  # by Keras' default from_logits=False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ExportWarning)
        export_model(model, tmp_path / "model.tflite")
    found = [str(each.message) for each in caught if each.category is ExportWarning]
    assert [each.partition(";")[0] for each in found] == warned * [
        "loss sparse_categorical_crossentropy: takes probabilities, since from_logits is False, but the model ends without "
        "softmax, so it hardly trains"
    ]


def mixed(policy: str) -> Any:
    with_norm = [layers.Dense(8, activation="relu"), layers.BatchNormalization(), layers.Dropout(0.0)]
    for layer in (body := [layers.Rescaling(0.5), *with_norm, layers.Dense(8)]):
        layer.dtype_policy = policy
    return keras.Sequential([layers.Input((6,)), *body, layers.Dense(3, dtype="float32")])


def test_mixed_precision_trains_in_float32(twins: Any) -> None:
    keras.utils.set_random_seed(2)
    half, whole = mixed("mixed_bfloat16"), mixed("float32")
    whole.set_weights(half.get_weights())
    with pytest.warns(ExportWarning, match=r"with the policy mixed_bfloat16 \(3 with weights\) compute in float32"):
        pair = twins(half, optimizer=optimizers.SGD(momentum=0.9), embed=True)
    assert half.layers[1].compute_dtype == "bfloat16"
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    whole.compile(optimizers.SGD(momentum=0.9), loss, run_eagerly=True)
    whole.optimizer.build(whole.trainable_variables)
    pair.model = whole
    pair.agree()


def test_masks_of_mixed_precision_export(twins: Any) -> None:
    keras.utils.set_random_seed(2)
    half, whole = (
        keras.Sequential([layers.Input((3, 2)), layers.Masking(dtype=policy), layers.LSTM(4, dtype=policy)])
        for policy in ("mixed_bfloat16", "float32")
    )
    whole.set_weights(half.get_weights())
    with pytest.warns(ExportWarning, match="compute in float32"):
        pair = twins(half, loss="mse")
    x = np.random.default_rng(0).normal(size=(8, 3, 2)).astype(np.float32)
    x[::2, 1] = 0.0
    np.testing.assert_allclose(pair.call("infer", x=x)["logits"], whole(x), atol=1e-6)


def test_int8_kernels_stay_int8(tmp_path: Path) -> None:
    """The constants of 2 x 128 x 128 kernels take a quarter of the bytes."""
    sizes = {}
    for quantized in (False, True):
        body = [layers.Dense(128, name=f"body_{i}", trainable=False) for i in range(2)]
        model = keras.Sequential([layers.Input((128,)), *body, layers.Dense(3, name="head")])
        if quantized:
            with warnings.catch_warnings(action="ignore"):  # Keras warns of each layer without a kernel
                model.quantize("int8", filters=lambda layer: layer.name != "head")
        path = export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="sgd", batch_size=2)
        sizes[quantized] = path.stat().st_size
        model = TrainableModel.load(path)
        names = model.moving.names
        assert [name.partition("/")[2] for name in names] == ["head/kernel", "head/bias"]
        trained = 2.0 * Runtime(model).initial
        stored = TrainableModel.from_content(with_initial_weights(model.content, trained))  # as `deploy` stores them
        np.testing.assert_array_equal(Runtime(stored).initial.vector, trained.vector)
    assert 3 * 2 * 128 * 128 - 20_000 < sizes[False] - sizes[True] < 3 * 2 * 128 * 128 + 20_000


def test_other_quantizations_are_refused(tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((6,)), layers.Dense(4, name="hidden"), layers.Dense(3, name="head")])
    with warnings.catch_warnings(action="ignore"):  # Keras uses what numpy deprecates
        model.layers[0].quantize("int4")
    with pytest.raises(ExportError, match=r"layer 'hidden': quantized to int4, .*quantize to int8, or leave"):
        export_model(model, tmp_path / "m.tflite", loss="mse", optimizer="sgd")


def test_only_adapters_move(twins: Any) -> None:
    pair = twins(adapted(), train_groups=["head", "body"])
    model = TrainableModel.load(pair.path)
    names = {name.rpartition("/")[2] for name in model.moving.names}
    assert names == {"lora_embeddings_a", "lora_embeddings_b", "lora_kernel_a", "lora_kernel_b", "kernel", "bias"}
    kernels = [p for p in model.parameters if p.name.endswith("/kernel") and p.moves]
    assert [p.group for p in kernels] == ["head"]
    assert {"train_head", "train_body"} <= model.capabilities
    lora = [layer for layer in all_layers(pair.model) if isinstance(layer, layers.Dense) and layer.lora_enabled]
    assert len(lora) == 1
    assert not any(layer._kernel.trainable for layer in lora)
