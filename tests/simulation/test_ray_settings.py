"""The settings of the Ray backend are checked before any Ray starts."""

import re

import pytest
import ray

from odt_sim.errors import ConfigurationError
from odt_sim.simulation.ray import RayBackend

AUTO = {"address": "auto"}

CASES = {
    "actors": ({"actors": 0}, "backend.actors: expected at least 1 or null, found 0"),
    "actors that are no number": ({"actors": "two"}, "backend.actors: expected at least 1 or null, found two"),
    "devices": ({"devices_per_actor": 2}, "backend.devices_per_actor: expected 1 or auto, found 2"),
    "no CPU": ({"num_cpus": 0}, "backend.num_cpus: expected a number above 0 or null, found 0"),
    "a word": ({"num_cpus": "half"}, "backend.num_cpus: expected a number above 0 or null, found 'half'"),
    "true": ({"num_cpus": True}, "backend.num_cpus: expected a number above 0 or null, found True"),
    "no mapping": ({**AUTO, "resources": "phone"}, "backend.resources: expected {name: amount} or null, found 'phone'"),
    "none of it": ({**AUTO, "resources": {"phone": 0}}, "backend.resources.phone: expected a number above 0, found 0"),
    "CPUs": ({**AUTO, "resources": {"CPU": 1}}, "backend.resources: expected names of your own, found CPU; say it by "),
    "GPUs": ({**AUTO, "resources": {"GPU": 1}}, "backend.resources: expected names of your own, found GPU; odt_sim's "),
    "here": ({"resources": {"phone": 1}}, "backend.resources: expected null for backend.address=local, whose Ray has "),
    "no environment": ({"runtime_env": "."}, "backend.runtime_env: expected {field: value} or null, found '.'"),
    "an unknown field": (
        {"runtime_env": {"workdir": "."}},
        "backend.runtime_env: Ray knows no workdir; choose of conda,",
    ),
    "no folder": ({"runtime_env": {"working_dir": "/no/such"}}, "backend.runtime_env: /no/such is not a valid path"),
    "no text": (
        {"runtime_env": {"env_vars": {"A": 1}}},
        "backend.runtime_env: runtime_env['env_vars'] must be of type",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_setting_out_of_range_is_one_line(case):
    settings, message = CASES[case]
    before = ray.is_initialized()
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        RayBackend(**settings)
    assert "\n" not in str(caught.value)
    assert ray.is_initialized() == before


def test_settings_in_their_range():
    RayBackend(
        "auto", num_cpus=0.25, resources={"phone": 0.5}, runtime_env={"working_dir": ".", "env_vars": {"A": "1"}}
    )
