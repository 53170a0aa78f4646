import warnings

import pytest

from odt_sim import Strategy
from odt_sim.aggregators import Aggregator


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (Strategy, "loca", "local"),
        (Strategy, "keep_updates", "keeps_updates"),
        (Aggregator, "combined", "combine"),
    ],
)
def test_misspelt_member_is_warned_of(base, name, meant):
    with pytest.warns(UserWarning, match=f"Mine.{name}: {base.__name__} has no {name}; rename it if you mean {meant}"):
        type("Mine", (base,), {name: None})


def test_other_members_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine = type("Mine", (Strategy,), {"local": None, "locals": None, "_deploys": None, "distance": None})
        type("Derived", (mine,), {"locals": None})
