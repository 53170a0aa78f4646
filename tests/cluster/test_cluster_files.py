"""The files of docs/cluster: they pass Ray's own parser, and what they refer to exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError

FOLDER = Path(__file__).parents[2] / "docs" / "cluster"


def test_ray_reads_the_cluster_yaml() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    given = yaml.safe_load((FOLDER / "ray-cluster.yaml").read_text())
    config = prepare_config(given)
    validate_config(config)
    assert config["available_node_types"]["local.cluster.node"]["min_workers"] == 2
    assert config["max_workers"] == 2


def test_misspelled_key_of_a_cluster_yaml_is_refused() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    given = yaml.safe_load((FOLDER / "ray-cluster.yaml").read_text())
    config = prepare_config({**given, "setup_command": []})
    with pytest.raises(ValidationError, match="setup_command"):
        validate_config(config)


def containers(spec: dict[str, Any]) -> dict[str, Any]:
    [container] = spec["template"]["spec"]["containers"]
    return dict(container)


def test_rayjob_has_what_kuberay_requires() -> None:
    """Of ray.io/v1: an entrypoint, a head group, worker groups with names and counts, and one image for all."""
    job = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch(r"[a-z0-9-]{1,47}", job["metadata"]["name"])
    spec = job["spec"]
    cluster = spec["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    head, workers = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    images = {containers(group)["image"] for group in (head, *workers)}
    assert len(images) == 1
    for group in workers:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        assert set(group) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    volumes = {volume["name"] for volume in head["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in containers(head)["volumeMounts"]} <= volumes


def test_entrypoint_of_the_rayjob_is_a_valid_command() -> None:
    from odt_sim.cli.hydra.overrides import composed

    job = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
    name, command, *overrides = job["spec"]["entrypoint"].split()
    assert (name, command) == ("odt-sim", "run")
    config = composed([given for given in overrides if not given.startswith("hydra.")])
    assert config.backend.address == "auto"
    assert config.run.storage.startswith("s3://")
