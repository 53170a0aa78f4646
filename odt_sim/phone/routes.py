"""Routes of the page: the model, its description and recorded calls, and the upload of a device profile.

The description has the order of inputs and targets, and the metrics of outputs.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from odt_sim.errors import ConfigurationError, FileError
from odt_sim.fleet.profile import DeviceProfile, Timing
from odt_sim.metrics.names import is_percent, title_of
from odt_sim.metrics.tasks import model_metrics, output_metrics, task_of_output
from odt_sim.model.contract.manifest import NO_LOSS, Output
from odt_sim.model.contract.names import full
from odt_sim.model.reading.flatbuffer import TensorInfo
from odt_sim.model.trainable import TrainableModel
from odt_sim.phone.app import body_of
from odt_sim.phone.recording import Recording
from odt_sim.phone.subject import Subject

LARGEST_PROFILE = 1 << 16
"""Maximum size of an upload in bytes."""


def phone_routes(
    subject: Subject, recording: Recording, timings: Mapping[str, Timing], profiles: Path
) -> list[BaseRoute]:
    """Return the routes of a subject.

    Args:
        subject: The model and its examples.
        recording: The calls to repeat.
        timings: Timings of the same model in Python on this machine.
        profiles: The folder of the device profiles.
    """
    text = json.dumps(description(subject, timings))
    contents = {
        "model.json": (text.encode(), "application/json"),
        "model.tflite": (subject.model.content, "application/octet-stream"),
        "reference.json": (recording.to_json().encode(), "application/json"),
        "reference.bin": (recording.values, "application/octet-stream"),
    }

    async def content(request: Request) -> Response:
        body, kind = contents[request.url.path.rpartition("/")[2]]
        return Response(body, media_type=kind)

    async def store(request: Request) -> Response:
        body = await body_of(request, LARGEST_PROFILE)
        try:
            profile = DeviceProfile.from_json(body, "the upload")
            same = profile.fingerprint == subject.model.fingerprint
            speed = timings["train"].median / profile.timings["train"].median if same else None
            profile = replace(profile, relative_speed=speed, measured=datetime.now(UTC).isoformat(timespec="seconds"))
            return JSONResponse({"file": str(profile.write(profiles))}, 201)
        except ConfigurationError as error:
            raise HTTPException(400, str(error)) from error
        except FileError as error:
            raise HTTPException(507, str(error)) from error

    return [*(Route(f"/{name}", content) for name in contents), Route("/profile", store, methods=["POST"])]


def description(subject: Subject, timings: Mapping[str, Timing]) -> dict[str, Any]:
    """Return the information that the page cannot read from the file itself."""
    model = subject.model
    return {
        "name": model.name,
        "fingerprint": model.fingerprint,
        "batch_size": model.batch_size,
        **described(model),
        "scores": [shown(metric) for metric in scores(model)],
        "learning_rate": subject.learning_rate,
        "parameters": [{"name": p.name, "shape": list(p.shape)} for p in model.parameters],
        "labels": list(subject.labels),
        "source": subject.source,
        "origin": subject.origin,
        "shades": subject.shades,
        "python": {name: asdict(timing) for name, timing in timings.items()},
    }


def described(model: TrainableModel) -> Mapping[str, Any]:
    """Return a model's inputs, targets and outputs by their names in signatures, and the properties that metrics need.

    `train_inputs` contains the default numbers of the further inputs of training steps, by name.
    """
    return {
        "inputs": [{"name": full("x", name), "vocabulary": model.vocabularies.get(name)} for name in model.inputs],
        "targets": [full("y", name) for name in model.targets],
        "outputs": [
            {**of_output(output, model.answers[output.name]), "classes": model.classes_by_target.get(output.name)}
            for output in model.outputs
        ],
        "train_inputs": {name: declared.default for name, declared in model.train_inputs.items()},
    }


def of_output(output: Output, answer: TensorInfo) -> Mapping[str, Any]:
    """Return the properties of an output that its metrics need.

    Args:
        output: The manifest's description.
        answer: The tensor `[batch, ...]` that `infer` returns.
    """
    task = task_of_output(output, answer.shape)
    return {
        "name": output.name,
        "answer": answer.name,
        "target": full("y", output.name),
        "mask": full("mask", output.name) if output.mask else None,
        "loss": output.loss,
        "loss_weight": output.loss_weight,
        "from_logits": output.from_logits,
        "delta": output.delta,
        "task": task,
        "metrics": output_metrics(task, answer.shape, output.metrics),
        "width": answer.shape[-1],
        "ignore_class": output.ignore_class,
    }


def scores(model: TrainableModel) -> list[str]:
    """Return the first metric of each output, shown to a phone's user after training; none if the loss is unknown."""
    if model.loss is None and not model.returns_losses:
        return []
    outputs = [(output, model.answers[output.name].shape) for output in model.outputs]
    first = [full(output_metrics(task_of_output(output, shape), shape)[0], output.name) for output, shape in outputs]
    metrics = model_metrics(model)
    if any(output.loss == NO_LOSS for output in model.outputs):
        return [metric for metric in first if not metric.startswith("loss")]
    return [metric for metric in first if metric in metrics] or ["loss"]


def shown(metric: str) -> Mapping[str, Any]:
    """Return the name of a metric, its title, and whether it is shown in percent."""
    return {"name": metric, "title": title_of(metric), "percent": is_percent(metric)}
