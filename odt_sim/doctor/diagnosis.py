"""The diagnosis of a file from its declarations and from experiments: findings, and where it trains."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.doctor import findings as kinds
from odt_sim.doctor.experiments import OF_DIAGNOSIS
from odt_sim.doctor.file_checks import NEEDED, Roles, check_file, manifest_of
from odt_sim.doctor.findings import Finding, Kind
from odt_sim.doctor.run_checks import check_trial, loss_text
from odt_sim.doctor.trial import Trial, tried
from odt_sim.errors import ModelError
from odt_sim.model.contract.browsers import check_for_browsers
from odt_sim.model.contract.manifest import METADATA_NAME
from odt_sim.model.contract.signatures import REQUIRED
from odt_sim.model.foreign.adaptation import Adaptation, adapted, with_other_targets
from odt_sim.model.foreign.roles import Corrections, find_roles
from odt_sim.model.reading.graph import Graph
from odt_sim.model.reading.graph_reader import read_graph
from odt_sim.model.trainable import TrainableModel, read_file

EXPLAIN: Sequence[tuple[Set[Kind], Set[Kind]]] = (
    ({kinds.NOT_FINITE}, {kinds.DIVERGES, kinds.LOSS_NOT_FINITE}),
    ({kinds.INFERENCE_TRAINS}, {kinds.RANDOM_INFERENCE, kinds.BATCH_DEPENDENT}),
    (
        {kinds.RANDOM_INFERENCE, kinds.BATCH_DEPENDENT, kinds.INFERENCE_TRAINS}
        | {kinds.OTHER_ORDER, kinds.NOT_WRITTEN, kinds.DIVERGES},
        {kinds.UNEXPLAINED, kinds.LOSS_NOT_FINITE},
    ),
)
"""Causes, and the findings that follow from each of them."""


@dataclass(frozen=True)
class Verdict:
    """Whether a file trains somewhere.

    Attributes:
        trains: Whether it trains; None if it was not tried.
        reason: Why, or how this was found.
    """

    trains: bool | None
    reason: str


@dataclass(frozen=True)
class Diagnosis:
    """The result of the examination of a file.

    Attributes:
        file: Its path.
        bytes: Its size.
        roles: The names of its signatures by role.
        findings: The findings; those that prevent training first.
        verdicts: Whether it trains, by runtime: `litert`, `flex` and `browser`.
        measured: Measurements of a step: `train_ms`, `infer_ms`, `rows`, `bytes` (peak memory of a process), `loss`.
    """

    file: str
    bytes: int
    roles: Mapping[str, str]
    findings: tuple[Finding, ...]
    verdicts: Mapping[str, Verdict]
    measured: Mapping[str, Any]

    @property
    def prevented(self) -> bool:
        """Whether a finding prevents training."""
        return any(finding.kind.prevents for finding in self.findings)

    def to_json(self) -> str:
        """Return the diagnosis as JSON."""
        found = [
            {
                "id": finding.kind.id,
                "title": finding.kind.title,
                "where": finding.where,
                "found": finding.found,
                "prevents": finding.kind.prevents,
                "remedy": finding.kind.remedy,
            }
            for finding in self.findings
        ]
        verdicts = {name: vars(verdict) for name, verdict in self.verdicts.items()}
        return json.dumps(
            {**vars(self), "findings": found, "verdicts": verdicts, "prevented": self.prevented}, indent=2
        )


def diagnose(path: Path, corrections: Corrections | None = None, flex_python: str | None = None) -> Diagnosis:
    """Examine a file, which only runs in a subprocess.

    Args:
        path: The file.
        corrections: Signatures by role where they are not found automatically, see `find_roles`.
        flex_python: The Python of an environment with TensorFlow 2.19, to try Flex ops; None to leave them untried.

    Raises:
        ModelError: The file cannot be read, or a correction names something that the file lacks.
    """
    content = read_file(path)
    try:
        graph = read_graph(content, str(path))
    except ModelError as error:
        found = (Finding(kinds.UNREADABLE, "", str(error).removeprefix(f"{path}: ")),)
        return Diagnosis(str(path), len(content), {}, found, _verdicts(found, None, ""), {})
    return _Examination(path, content, graph, corrections, flex_python).diagnosis()


class _Examination:
    """The examination of a readable file."""

    def __init__(
        self, path: Path, content: bytes, graph: Graph, corrections: Corrections | None, flex_python: str | None
    ) -> None:
        self._path, self._content, self._graph = path, content, graph
        self._corrections, self._flex_python = corrections, flex_python
        self._manifest = manifest_of(graph, str(path))
        required = {role: role for role in REQUIRED if role in graph.signatures}
        roles = find_roles(graph, str(path), required if METADATA_NAME in graph.metadata else corrections)
        self._all_roles, self._missing = roles, roles.missing
        self._roles: Roles = {
            role: {"name": roles[role].signature, **roles[role].inputs, **roles[role].outputs}
            for role in NEEDED
            if role in roles and graph.signatures[roles[role].signature].declared
        }
        if self._manifest is not None and max(len(self._manifest.inputs), len(self._manifest.outputs)) > 1:
            self._roles = {role: {"name": role} for role in required}  # others have one input and one output
            self._missing = ""

    def diagnosis(self) -> Diagnosis:
        findings = list(check_file(self._graph, self._roles, self._all_roles, self._missing))
        runtime: RuntimeChoice | None = LITERT
        if any(finding.kind is kinds.FLEX_IN_STEP for finding in findings):
            runtime = RuntimeChoice("flex", self._flex_python) if self._flex_python else None  # none here
        measured: dict[str, Any] = {}
        browser = ""  # why browsers cannot train it
        if runtime is not None:
            adaptation, model, refused = self._adapted(runtime)
            browser = _refused_by_browsers(model) if model else ""
            experiments = OF_DIAGNOSIS if model else OF_DIAGNOSIS[:1]
            trial = tried(adaptation.content, str(self._path), runtime, experiments)
            if "train" in (trial.result("declared") or {}) and adaptation.roles and not runtime.runs_flex:
                other = with_other_targets(self._content, str(self._path), adaptation.roles, self._options(runtime))
                if other:
                    trial = tried(other.content, str(self._path), runtime)
                    findings.append(Finding(kinds.WRONG_SHAPE, adaptation.roles["train"].signature, other.notes[0]))
            parameters = self._manifest.parameters if self._manifest else ()
            frozen = {parameter.name for parameter in parameters if not parameter.moves}
            findings += check_trial(trial, self._roles, frozen)
            if refused and not any(finding.kind.prevents for finding in findings):
                findings.append(Finding(kinds.REFUSED, "", refused))
            measured = self._measured(trial, runtime)
        ordered = tuple(sorted(self._causes(findings), key=lambda f: (not f.kind.prevents, f.kind.id, f.where)))
        names = {role: signature["name"] for role, signature in self._roles.items()}
        verdicts = _verdicts(ordered, runtime, browser)
        return Diagnosis(str(self._path), len(self._content), names, ordered, verdicts, measured)

    def _options(self, runtime: RuntimeChoice) -> dict[str, Any]:
        return {"signatures": self._corrections, "flex": runtime.runs_flex}

    def _adapted(self, runtime: RuntimeChoice) -> tuple[Adaptation, TrainableModel | None, str]:
        """Return the file as a simulation adapts it, its model, and why a simulation refuses it: no model, or empty."""
        where = str(self._path)
        try:
            adaptation = adapted(self._content, where, **self._options(runtime))
            return adaptation, TrainableModel.from_content(adaptation.content, where=where, flex=runtime.runs_flex), ""
        except ModelError as error:
            return Adaptation(self._content, None), None, str(error).removeprefix(f"{where}: ")

    def _causes(self, findings: Sequence[Finding]) -> list[Finding]:
        """Leave out findings that are explained by another one, or by a loss that the manifest names."""
        ids = {finding.kind for finding in findings}
        explained = {kind for causes, effects in EXPLAIN if causes & ids for kind in effects}
        if self._manifest is not None and (self._manifest.loss is not None or "loss" in self._graph.signatures):
            explained.add(kinds.UNEXPLAINED)
        return [finding for finding in findings if finding.kind not in explained]

    def _measured(self, trial: Trial, runtime: RuntimeChoice) -> dict[str, Any]:
        measured = {"runtime": runtime.name, **(trial.result("speed") or {})}
        if runtime.runs_flex:
            measured.pop("bytes", None)  # the memory of this side of the pipe
        if self._manifest is not None:
            losses = [loss_text(output.loss, output.from_logits) or "its own" for output in self._manifest.outputs]
            return {**measured, "loss": " + ".join(losses)}
        loss = trial.result("loss") or {}
        return {**measured, "loss": loss_text(loss.get("loss"), loss.get("from_logits", True)) or None}


def _refused_by_browsers(model: TrainableModel) -> str:
    try:
        check_for_browsers(model)
    except ModelError as error:
        return str(error).removeprefix(f"{model.where}: ")
    return ""


def _verdicts(found: tuple[Finding, ...], runtime: RuntimeChoice | None, refused: str) -> dict[str, Verdict]:
    preventing = [finding for finding in found if finding.kind.prevents]
    flex = ", ".join(finding.where for finding in preventing if finding.kind is kinds.FLEX_IN_STEP)
    ids = ", ".join(dict.fromkeys(each.kind.id for each in preventing if each.kind is not kinds.FLEX_IN_STEP))
    see = f"see {ids}"
    if flex:
        advice = f"Flex ops in {flex}; rewrite them with odt-sim deflex"
        litert = Verdict(False, f"{advice}, and {see}" if ids else advice)
    else:
        litert = Verdict(not ids, see if ids else "tried here")
    if ids:
        with_flex = Verdict(False, see)
    elif not flex:
        with_flex = Verdict(True, "training needs no Flex ops")
    elif runtime is not None and runtime.runs_flex:
        with_flex = Verdict(True, "tried here in TensorFlow's interpreter")
    else:
        with_flex = Verdict(None, "not tried; pass --flex-python")
    browser = Verdict(not refused, refused or "judged by its declarations; to try it: odt-sim phone FILE")
    if not litert.trains:
        browser = Verdict(False, "it does not train on LiteRT")
    return {"litert": litert, "flex": with_flex, "browser": browser}
