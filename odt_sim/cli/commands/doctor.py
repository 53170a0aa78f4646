"""The command `odt-sim doctor`: report whether a `.tflite` file trains, and problems of the file or the environment."""

import json
import os
from collections.abc import Sequence

from rich.console import Console

from odt_sim.cli.command_table import parsed, parser
from odt_sim.device.engines.flex import PYTHON
from odt_sim.doctor.diagnosis import diagnose
from odt_sim.doctor.page import print_page
from odt_sim.errors import ConfigurationError


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
