from odt_sim.device.runtime import Runtime
from odt_sim.model.contract.identity import model_digest


def digest(model):
    return model_digest(model, Runtime(model).initial)


def test_exports_of_a_model_share_a_digest(softmax, softmax_with_offset, softmax_with_embedding):
    files = (softmax, softmax_with_offset, softmax_with_embedding)
    assert len({model.fingerprint for model in files}) == 3
    assert len({digest(model) for model in files}) == 1


def test_terms_of_the_loss_are_not_part_of_a_model(small_mlp, termed):
    assert digest(termed) == digest(small_mlp)


def test_other_models_have_other_digests(softmax, digits_mlp, momentum, adam):
    assert len({digest(model) for model in (softmax, digits_mlp, momentum, adam)}) == 4


def test_weights_are_part_of_a_model(softmax):
    initial = Runtime(softmax).initial
    assert model_digest(softmax, initial) != model_digest(softmax, initial * 2)
