"""The files of conf/ match the signatures of their targets, and help and reference list every key."""

import re
from collections.abc import Sequence

import pytest

from docs import reference
from odt_sim.cli.commands.run_help import run_help
from odt_sim.cli.hydra.options import OPTIONS, groups, options
from odt_sim.cli.hydra.settings import COMPONENTS, component
from odt_sim.declarations import REQUIRED

CHOSEN = [option for group in COMPONENTS for option in options(group)]


def plain(value):
    return [plain(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


@pytest.mark.parametrize("group", COMPONENTS)
def test_options_have_the_keys_and_defaults_of_their_signature(group, shipped):
    for name, values in shipped(group).items():
        found = component(group, values["_target_"])
        declared = {each.key.partition(".")[2]: each.default for each in found.settings}
        given = {key: value for key, value in values.items() if not key.startswith("_")}
        assert set(given) == set(declared), name
        free = {key for key, default in declared.items() if default == REQUIRED}
        assert {key: plain(given[key]) for key in given if key not in free} == {
            key: plain(default) for key, default in declared.items() if key not in free
        }, name


def test_every_setting_is_documented():
    settings = [setting for section in [*groups(), *CHOSEN] for setting in section.settings]
    assert len(settings) > 90
    assert [setting.key for setting in settings if not setting.text] == []


def test_texts_of_settings_say_null_and_can_be_read_alone():
    settings = [setting for section in [*groups(), *CHOSEN, *options("model")] for setting in section.settings]
    texts = {setting.key: setting.text for setting in settings}
    assert texts["tracker.tracking_uri"] == "The database or the server; null for MLflow's own setting"
    assert [key for key, text in texts.items() if re.search(r"\bNone\b|\bLikewise\b|\bAs of\b", text)] == []


def test_help_and_reference_list_every_key_and_option():
    names = [option.name for group in OPTIONS for option in options(group)]
    keys = [setting.key for section in [*groups(), *CHOSEN] for setting in section.settings]
    everything = run_help(["all"])
    for text in (everything, reference.settings()):
        assert [name for name in [*names, *keys] if name not in text] == []
    assert "  run.rounds=40\n      number of rounds (a whole number of at least 1)\n" in everything
    assert (
        "| `fleet.min_devices` | a whole number of at least 0 | `1` | fewest contributing devices; "
        in reference.settings()
    )
