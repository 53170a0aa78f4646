"""The command `odt-sim export`: write the configured model's `.tflite`."""

from collections.abc import Sequence
from pathlib import Path

from odt_sim._support.files import refuse_source, write_file
from odt_sim._support.user_code import add_working_folder
from odt_sim.cli.command_table import parsed
from odt_sim.cli.hydra.build import model_file
from odt_sim.cli.hydra.keys import check_keys
from odt_sim.cli.hydra.overrides import composed
from odt_sim.errors import ConfigurationError
from odt_sim.model.trainable import TrainableModel


def export(arguments: Sequence[str]) -> int:
    """Write the configured model's `.tflite` and return the exit code."""
    options = parsed("export", arguments)
    add_working_folder()
    config = composed(options.overrides)
    check_keys(config)
    if "build" not in config.model:
        raise ConfigurationError("model: is already a .tflite file; choose a model that is built with Keras")
    output: Path = options.output or Path(f"{config.model.name}.tflite")
    if config.model.get("path") is not None:
        refuse_source(output, Path(config.model.path))
    write_file(output, model_file(config).read_bytes())
    model = TrainableModel.load(output)
    floats, signatures = model.layout.size, ", ".join(model.signatures)
    print(f"{output}: {len(model.content):,} bytes, {floats:,} parameters, signatures {signatures}")
    return 0
