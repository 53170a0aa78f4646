"""The page for phones refuses files with several inputs or outputs in one line."""

import pytest

from odt_sim import TrainableModel
from odt_sim.errors import ModelError
from odt_sim.phone.subject import Subject


@pytest.mark.parametrize(
    ("name", "found"), [("recommender", "takes x_user, x_item and y"), ("heads", "takes x and y_kind, y_size")]
)
def test_several_inputs_or_outputs_are_refused(name: str, found: str, request: pytest.FixtureRequest) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    with pytest.raises(ModelError, match=f": {found}; the page for phones trains models with one input, one output"):
        Subject.random(model)
