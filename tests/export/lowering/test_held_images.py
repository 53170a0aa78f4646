"""A training step of a MobileNetV2 block transposes no kernel and copies nothing for a mean."""

from typing import Any

import pytest

BATCH, SIZE, CHANNELS, FILTERS = 4, 32, 2, 12


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the training step of an expansion, a padded depthwise convolution and a projection."""
    from keras import Input, Model, layers, optimizers

    from odt_sim.export import export_model
    from odt_sim.model.reading.graph_reader import read_graph

    def normalized(x: Any, filters: int) -> Any:
        return layers.BatchNormalization()(layers.Conv2D(filters, 1, use_bias=False)(x))

    inputs = Input((SIZE, SIZE, CHANNELS))
    x = layers.ReLU(6.0)(normalized(inputs, FILTERS))
    x = layers.DepthwiseConv2D(3, 2, use_bias=False)(layers.ZeroPadding2D(((0, 1), (0, 1)))(x))
    x = normalized(layers.ReLU(6.0)(layers.BatchNormalization()(x)), CHANNELS)
    x = layers.ReLU(6.0)(normalized(x, FILTERS))
    network = Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D(keepdims=True)(x)))
    path = export_model(
        Model(network.input, layers.Flatten()(network.output)),
        tmp_path_factory.mktemp("held") / "model.tflite",
        optimizer=optimizers.SGD(0.1),
        loss="sparse_categorical_crossentropy",
        batch_size=BATCH,
    )
    return read_graph(path.read_bytes(), "model").subgraph("train")


def test_no_kernel_of_one_place_is_transposed(step: Any) -> None:
    kinds = [op.kind for op in step.ops]
    assert "DEPTHWISE_CONV_2D" in kinds
    assert "TRANSPOSE" not in kinds


def test_no_op_copies_for_a_mean_or_a_single_part(step: Any) -> None:
    assert "TILE" not in [op.kind for op in step.ops]
    assert [op for op in step.ops if op.kind == "SPLIT" and len(op.outputs) == 1] == []
