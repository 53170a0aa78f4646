"""The command `odt-sim phone`: let a phone's browser check, measure and personalize a trainable file."""

import json
import secrets
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from odt_sim._support.system import check_extra
from odt_sim._support.user_code import add_working_folder
from odt_sim.cli.command_table import parsed
from odt_sim.cli.hydra.build import federated
from odt_sim.cli.hydra.components import build
from odt_sim.cli.hydra.keys import check_keys
from odt_sim.cli.hydra.overrides import composed
from odt_sim.cli.hydra.saved_config import is_saved, saved_config
from odt_sim.deploy.write import CLASSES
from odt_sim.device.engines import quiet
from odt_sim.errors import ConfigurationError
from odt_sim.model.trainable import TrainableModel
from odt_sim.persistence.run import find_runs, one_run
from odt_sim.persistence.run_folder import SUMMARY, TRAINED_MODEL
from odt_sim.phone.subject import Subject

PROFILES = Path("profiles")


def phone(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C and return the exit code."""
    options = parsed("phone", arguments)
    check_extra("phone")
    if (options.certificate is None) != (options.key is None):
        raise ConfigurationError("--certificate: needs --key, and vice versa; give both, or neither for http")
    serve(_subject(options.path, options.overrides), options)
    return 0


def serve(subject: Subject, options: Namespace) -> None:
    """Record and time the model, print the address, and serve until Ctrl-C.

    Args:
        subject: The model and its examples.
        options: The command's options.

    Raises:
        ConfigurationError: The address, the certificate or the assets cannot be used.
        ModelError: LiteRT cannot run the file.
    """
    from odt_sim.phone.app import phone_app
    from odt_sim.phone.recording import measure, record
    from odt_sim.phone.routes import phone_routes
    from odt_sim.phone.server import Server, Tls, address_of, listen

    tls = Tls(options.certificate, options.key).check() if options.certificate else None
    listening = listen(options.host, options.port)
    with listening:
        with quiet():
            recording, timings = record(subject), measure(subject)
        routes = phone_routes(subject, recording, timings, PROFILES)
        token = secrets.token_urlsafe(12)
        server = Server(phone_app(token, options.host, assets=options.assets, routes=routes), listening, tls)
        print(f"{subject.model.name}: recorded {len(recording.calls)} calls with {subject.origin}")
        _print_address(address_of(listening, token, tls), secure=tls is not None, offline=options.assets is not None)
        with suppress(KeyboardInterrupt):
            server.run()
        print("stopped")


def _print_address(address: str, secure: bool, offline: bool) -> None:
    from odt_sim.phone.server import qr_code

    print(f"\nOpen this address on a phone in the same network:\n\n  {address}\n\n{qr_code(address)}\n")
    if not secure:
        print("Motion sensors and the battery's charge need https: add --certificate and --key.")
    if not offline:
        print("The phone loads LiteRT.js from a CDN: add --assets DIR to serve it from here.")
    print("Device profiles are written to profiles/. Ctrl-C stops the server.", flush=True)


def _subject(path: Path, overrides: Sequence[str]) -> Subject:
    """Return the model of a file or a run, with examples from its data if known, else with random ones.

    Raises:
        ModelError: The file is not trainable.
        CheckpointError: A folder contains no run.
        DataError: The data cannot be read or does not fit.
        ConfigurationError: An override or the run's configuration does not fit.
    """
    add_working_folder()
    if path.is_dir():
        if overrides:
            raise ConfigurationError(f"{overrides[0]}: a run uses its own data; leave this out, or give a .tflite file")
        return _of_run(one_run(find_runs([path]), path))
    model = TrainableModel.load(path)
    if not overrides:
        return Subject.random(model, _names_beside(path))
    config = composed(overrides)
    check_keys(config)
    data = build(config.data, "data")
    return Subject.of(model, data.x, data.y, f"data {data.name}", data.class_names)


def _names_beside(model: Path) -> tuple[str, ...]:
    """Return the names of the classes that `odt-sim deploy` wrote beside a model; empty if there are none.

    Raises:
        ConfigurationError: The file is not a list of names.
    """
    path = model.with_name(CLASSES)
    if not path.is_file():
        return ()
    try:
        names = json.loads(path.read_bytes())
    except ValueError:
        names = None
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ConfigurationError(f"{path}: expected a list of the names of the classes; correct it, or remove it")
    return tuple(names)


def _of_run(folder: Path) -> Subject:
    file = folder / TRAINED_MODEL
    if not file.is_file():
        remedy = (
            f"its strategy has no global model; deploy a device's model and give that file: odt-sim deploy {folder} "
            "--device ID "
            "(--new for new users), or odt_sim.deploy.write.deploy for a run started from Python"
            if (folder / SUMMARY).is_file()
            else "give the folder of a complete run, or a .tflite file"
        )
        raise ConfigurationError(f"{folder}: contains no {TRAINED_MODEL}; {remedy}")
    model = TrainableModel.load(file)
    if not is_saved(folder):  # a run from Python
        return Subject.random(model)
    data = federated(saved_config(folder))
    rows = data.train(0)
    return Subject.of(model, data.x[rows], data.y[rows], f"data {data.name}", data.class_names)
