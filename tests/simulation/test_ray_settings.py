"""The settings of the Ray backend are checked before any Ray starts."""

import re

import pytest
import ray

from odt_sim.errors import ConfigurationError
from odt_sim.simulation.executors.ray import RayBackend

CASES = [
    ({"address": 6399}, "backend.address: expected local, auto or host:port, found 6399"),
    ({"address": "there"}, "backend.address: expected local, auto or host:port, found 'there'"),
    (
        {"address": "ray://127.0.0.1:10001"},
        "backend.address=ray://127.0.0.1:10001: Ray Client cannot access the memory of",
    ),
    ({"actors": 0}, "backend.actors: expected at least 1 or null, found 0"),
    ({"actors": "two"}, "backend.actors: expected at least 1 or null, found two"),
    ({"devices_per_actor": 2}, "backend.devices_per_actor: expected 1 or auto, found 2"),
    ({"num_cpus": 0}, "backend.num_cpus: expected a number above 0 or null, found 0"),
    ({"num_cpus": True}, "backend.num_cpus: expected a number above 0 or null, found True"),
    ({"resources": "phone"}, "backend.resources: expected {name: amount} or null, found 'phone'"),
    ({"resources": {"phone": 0}}, "backend.resources.phone: expected a number above 0, found 0"),
    ({"resources": {"CPU": 1}}, "backend.resources: expected custom resources, found CPU; use backend.num_cpus"),
    ({"address": "local", "resources": {"phone": 1}}, "backend.resources: expected null for backend.address=local"),
    ({"runtime_env": "."}, "backend.runtime_env: expected {field: value} or null, found '.'"),
    ({"runtime_env": {"workdir": "."}}, "backend.runtime_env: unknown field workdir; expected one of conda,"),
    ({"runtime_env": {"working_dir": "/no/such"}}, "backend.runtime_env: /no/such is not a valid path"),
    ({"runtime_env": {"env_vars": {"A": 1}}}, "backend.runtime_env: runtime_env['env_vars'] must be of type"),
]


@pytest.mark.parametrize(("settings", "message"), CASES, ids=[message.split(":")[0] for _, message in CASES])
def test_invalid_setting_is_refused_in_one_line(settings, message):
    before = ray.is_initialized()
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        RayBackend(**{"address": "auto", **settings})
    assert "\n" not in str(caught.value)
    assert ray.is_initialized() == before


def test_valid_settings_are_accepted():
    RayBackend("host:6379", num_cpus=0.25, resources={"phone": 0.5}, runtime_env={"env_vars": {"A": "1"}})
