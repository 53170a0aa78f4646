"""Models of Hugging Face's `transformers` compute and train as in PyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from odt_sim.device.device import Device
from odt_sim.errors import ExportError
from odt_sim.export import export_model
from odt_sim.export.torch.module import keras_model
from odt_sim.model.trainable import TrainableModel

IDS = torch.randint(0, 50, (4, 6), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0], [1] * 6])


def _classifier() -> torch.nn.Module:
    return transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            vocab_size=50, dim=8, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=8, num_labels=3,
            dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0,
        )
    )  # fmt: skip


def _language_model() -> torch.nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
            intermediate_size=16,
        )
    )  # fmt: skip


def _scaled_language_model() -> torch.nn.Module:
    return transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(
            vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=16, head_dim=4,
        )
    )  # fmt: skip


@pytest.mark.slow
def test_language_model_needs_no_mask_and_keeps_its_cache() -> None:
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0,
        output_hidden_states=True,
    )  # fmt: skip
    module = transformers.GPT2LMHeadModel(config).eval()
    model = keras_model(module, {"input_ids": IDS}, 4)
    wanted = module(input_ids=IDS)
    np.testing.assert_allclose(model([IDS.numpy().astype(np.int32)]), wanted.logits.detach(), rtol=1e-4, atol=1e-5)
    assert wanted.past_key_values is not None


def test_loss_of_its_own_is_refused() -> None:
    with pytest.raises(ExportError, match=r"^torch: forward computes its own loss .*; leave them out of example"):
        keras_model(_classifier(), {"input_ids": IDS, "labels": torch.zeros(4, dtype=torch.long)}, 4)


@pytest.mark.slow
def test_head_trains_on_embeddings_as_on_inputs(tmp_path: Path) -> None:
    module = _classifier()
    module.distilbert.requires_grad_(False)
    path = export_model(
        module, tmp_path / "m.tflite", example={"input_ids": IDS, "attention_mask": MASK}, batch_size=4,
        loss="sparse_categorical_crossentropy", optimizer="sgd", embed=True, head=["pre_classifier", "classifier"],
    )  # fmt: skip
    model = TrainableModel.load(path)
    x = {"input_ids": IDS.numpy().astype(np.int32), "attention_mask": MASK.numpy().astype(np.int32)}
    data = x, np.array([0, 1, 2, 1])
    plain, frozen = Device(model, data), Device(model, data)
    for _ in range(3):
        wanted = plain.train(learning_rate=0.1)
        found = frozen.train(learning_rate=0.1, group="head")
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(frozen.infer(x), plain.infer(x), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("create", "y"),
    [
        (_classifier, torch.tensor([0, 1, 2, 1])),
        (_language_model, IDS.roll(-1, 1)),
        (_scaled_language_model, IDS.roll(-1, 1)),
    ],
)
def test_exported_model_trains_as_in_pytorch(create: Callable[[], Any], y: torch.Tensor, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = create()
    given = {"input_ids": IDS, "attention_mask": MASK}
    path = export_model(
        module,
        tmp_path / "m.tflite",
        example=given,
        loss="sparse_categorical_crossentropy",
        optimizer="sgd",
        batch_size=4,
    )
    x = {name: value.numpy().astype(np.int32) for name, value in given.items()}
    device = Device(TrainableModel.load(path), (x, y.numpy()))
    optimizer = torch.optim.SGD(module.train().parameters(), 0.1)
    for _ in range(3):
        logits = module(**given).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert device.train_batch(x, y.numpy(), 0.1) == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(device.infer(x), module.eval()(**given).logits.detach(), rtol=1e-4, atol=1e-5)
