"""The command `odt-sim doctor`: report whether a `.tflite` file trains, and problems of the file or the environment."""

import json
import os
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from odt_sim.cli.command_table import parsed, parser
from odt_sim.device.engines.flex import PYTHON
from odt_sim.doctor.diagnosis import Diagnosis, Verdict, diagnose
from odt_sim.doctor.findings import Finding, Kind
from odt_sim.errors import ConfigurationError

PLACES = {"litert": "on bare LiteRT", "flex": "with Flex (TensorFlow 2.19)", "browser": "in a browser (LiteRT.js)"}


def doctor(arguments: Sequence[str]) -> int:
    """Print the diagnosis of a file or of the environment.

    Returns:
        The exit code: 0, or 1 if a finding prevents training.
    """
    options = parsed("doctor", arguments)
    if options.environment == (options.file is not None):
        parser("doctor").error("expected either FILE or --environment")
    if options.environment:
        return _environment(options.json)
    diagnosis = diagnose(options.file, _corrections(options.signature), options.flex_python or os.environ.get(PYTHON))
    if options.json:
        print(diagnosis.to_json())
    else:
        print_page(diagnosis, Console())
    return 1 if diagnosis.prevented else 0


def _environment(as_json: bool) -> int:
    from odt_sim.cli.commands.environment import environment, print_environment

    found = environment()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_environment(found, Console())
    return 0


def _corrections(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for role, sign, name in pairs:
        if not (role and sign and name):
            raise ConfigurationError(
                f"--signature: expected ROLE=NAME, such as train=train_epoch, found {role + sign + name!r}"
            )
    return {role: name for role, _, name in pairs}


def print_page(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis."""
    console.print(Text.assemble((diagnosis.file, "bold"), f": {diagnosis.bytes:,} bytes"))
    console.print(_verdicts(diagnosis))
    if diagnosis.roles:
        roles = [f"{role} is {name!r}" if role != name else role for role, name in diagnosis.roles.items()]
        console.print(f"signatures: {', '.join(roles)}", markup=False, highlight=False)
    if diagnosis.measured.get("train_ms") is not None:
        console.print(_measured(diagnosis), markup=False, highlight=False)
    for kind in dict.fromkeys(finding.kind for finding in diagnosis.findings):
        console.print(_finding(kind, [finding for finding in diagnosis.findings if finding.kind is kind]))
    if not diagnosis.findings:
        console.print("\nnothing found")


def _verdicts(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, verdict in diagnosis.verdicts.items():
        table.add_row(f"trains {PLACES[name]}", _answer(verdict), Text(verdict.reason))
    return table


def _answer(verdict: Verdict) -> Text:
    word, style = {True: ("yes", "green"), False: ("no", "red"), None: ("unknown", "yellow")}[verdict.trains]
    return Text(word, style=f"bold {style}")


def _measured(diagnosis: Diagnosis) -> str:
    m = diagnosis.measured
    loss = m.get("loss") or "unknown"
    memory = f", {m['bytes'] / 1e6:.0f} MB of memory with Python" if "bytes" in m else ""
    return (
        f"a step on {m['rows']} rows: {m['train_ms']:.3g} ms, inference {m['infer_ms']:.3g} ms{memory}; loss: {loss} "
        f"({m['runtime']})"
    )


def _finding(kind: Kind, found: Sequence[Finding]) -> RenderableType:
    title = Text.assemble("\n", (kind.id, "bold red" if kind.prevents else "bold yellow"), " ", (kind.title, "bold"))
    places = [Text(f"{finding.where}: {finding.found}" if finding.where else finding.found) for finding in found]
    body = Group(*places, Text(kind.explanation, style="dim"), Text.assemble(("do: ", "bold"), kind.remedy))
    return Group(title, Padding(body, (0, 0, 0, 5)))
