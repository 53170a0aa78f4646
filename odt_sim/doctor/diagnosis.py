"""The diagnosis of a file from its declarations and from experiments: findings, and where it trains."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odt_sim.device.engines import LITERT, RuntimeChoice
from odt_sim.doctor import findings as kinds
from odt_sim.doctor.experiments import OF_SEVERAL
from odt_sim.doctor.file_checks import NEEDED, check_file, manifest_of
from odt_sim.doctor.findings import Finding, Kind
from odt_sim.doctor.run_checks import check_trial, loss_text
from odt_sim.doctor.subject import Roles
from odt_sim.doctor.trial import tried
from odt_sim.errors import ModelError
from odt_sim.model.contract.browsers import check_for_browsers
from odt_sim.model.contract.manifest import METADATA_NAME
from odt_sim.model.contract.signatures import REQUIRED
from odt_sim.model.foreign.adaptation import adapted
from odt_sim.model.foreign.roles import Corrections, find_roles
from odt_sim.model.reading.graph import Graph, Handle
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
        self._own, self._manifest = METADATA_NAME in graph.metadata, manifest_of(graph, str(path))
        known = {role: role for role in REQUIRED if role in graph.signatures} if self._own else corrections
        self._browser = ""  # why browsers cannot train it
        self._found = found = find_roles(graph, str(path), known)
        self._roles: Roles = {
            role: {"name": found[role].signature, **found[role].inputs, **found[role].outputs}
            for role in NEEDED
            if role in found and graph.signatures[found[role].signature].declared
        }
        self._missing, self._corrections, self._flex_python = found.missing, corrections, flex_python
        self._several = (
            self._manifest is not None and max(map(len, (self._manifest.inputs, self._manifest.outputs))) > 1
        )
        if self._several:  # roles found in the graph assume signatures with one input and one output
            self._roles, self._missing = {role: {"name": role} for role in REQUIRED if role in graph.signatures}, ""

    def diagnosis(self) -> Diagnosis:
        declared = list(check_file(self._graph, self._roles, self._missing))
        runtime: RuntimeChoice | None = LITERT
        if any(finding.kind is kinds.FLEX_IN_STEP for finding in declared):
            runtime = RuntimeChoice("flex", self._flex_python) if self._flex_python else None  # none here
        ran: list[Finding] = []
        measured: dict[str, Any] = {}
        if runtime is not None:
            content, roles, refused = self._completed(flex=runtime.runs_flex)
            parameters = self._manifest.parameters if self._own and self._manifest is not None else ()
            frozen = {f"a{i}" for i, parameter in enumerate(parameters) if not parameter.moves}
            trial = tried(content, str(self._path), roles, runtime, OF_SEVERAL if self._several else None)
            ran = list(check_trial(trial, {**roles, **self._roles}, self._variables(), frozen))
            if refused and not any(finding.kind.prevents for finding in [*declared, *ran]):
                ran.append(Finding(kinds.REFUSED, "", refused))
            measured = self._measured(trial.result("speed"), trial.result("loss"), runtime)
        found = tuple(sorted(self._causes([*declared, *ran]), key=lambda f: (not f.kind.prevents, f.kind.id, f.where)))
        names = {role: own["name"] for role, own in self._roles.items()}
        return Diagnosis(
            str(self._path), len(self._content), names, found, _verdicts(found, runtime, self._browser), measured
        )

    def _completed(self, *, flex: bool) -> tuple[bytes, Roles, str]:
        """Return the file and its roles, adapted as in a simulation if it cannot read and write its weights.

        The third value says why a simulation refuses the file; empty if it does not.
        """
        where = str(self._path)
        try:
            content = adapted(self._content, where, signatures=self._corrections, flex=flex).content
            added = TrainableModel.from_content(content, where=where, flex=flex)
        except ModelError as error:
            return self._content, self._roles, str(error).removeprefix(f"{where}: ")
        self._manifest = self._manifest or added.manifest
        try:
            check_for_browsers(added)
        except ModelError as error:
            self._browser = str(error).removeprefix(f"{where}: ")
        if {"parameters", "restore"} <= self._roles.keys():
            return self._content, self._roles, ""
        return content, {role: {"name": role} for role in REQUIRED}, ""

    def _causes(self, found: list[Finding]) -> list[Finding]:
        """Leave out findings that are explained by another one, or by a loss that the manifest names."""
        ids = {finding.kind for finding in found}
        explained = set[Kind]()
        for causes, effects in EXPLAIN:
            if causes & ids:
                explained |= effects
        if self._own and self._manifest is not None and self._manifest.loss is not None:
            explained.add(kinds.UNEXPLAINED)
        return [finding for finding in found if finding.kind not in explained]

    def _variables(self) -> dict[str, str]:
        """Return the author's name of each output of the reading signature."""
        if self._manifest is not None and (self._own or "parameters" not in self._found):
            return {f"a{i}": p.name for i, p in enumerate(self._manifest.parameters)}
        if "parameters" not in self._found:
            return {}
        flow = self._found.flow("parameters")
        sources = {name: [s for s in flow.of_output(name) if isinstance(s, Handle)] for name in flow.entry.outputs}
        return {name: handles[0].name for name, handles in sources.items() if len(handles) == 1}

    def _measured(self, speed: Any, loss: Any, runtime: RuntimeChoice) -> dict[str, Any]:
        figures = {"runtime": runtime.name, **(speed or {})}
        if runtime.runs_flex:
            figures.pop("bytes", None)  # the memory of this side of the pipe
        if self._several and self._manifest is not None:
            losses = ({"loss": output.loss, "from_logits": output.from_logits} for output in self._manifest.outputs)
            return {**figures, "loss": " + ".join(loss_text(loss) or "its own" for loss in losses)}
        named = self._manifest.loss if self._own and self._manifest is not None else None
        return {**figures, "loss": (loss_text(loss) if loss else None) or named}


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
