"""The errors that odt_sim raises on purpose.

OdtSimError
├── ConfigurationError   a setting or an override is unknown, missing or out of range
├── ModelError           a `.tflite` file is unreadable, lacks a signature, or does not fit its inputs
│   ├── ExportError      a Keras model cannot be exported to a trainable `.tflite`
│   └── InvocationError  LiteRT fails while it runs a signature
├── DataError            examples, labels, a partition or a split are unusable
├── CheckpointError      a checkpoint or a run's record is missing, damaged or from another model
│   └── VersionError     a checkpoint has another format version
├── FileError            a file cannot be written, or is temporarily unreadable
├── StrategyError        a strategy needs something that the model or the fleet lacks
└── SimulationError      a run cannot continue: workers died, every update failed, too few devices are left

Each message is one line: what is wrong, where, what was expected, what was found, and what to do.
"""

from typing import TypeVar

Error = TypeVar("Error", bound="OdtSimError")


class OdtSimError(Exception):
    """The base class of all errors in odt_sim.

    Attributes:
        in_user_code: Whether the cause is an exception that user code raised.
        transient: Whether the same settings may succeed later: a process was killed, or a disk or the network failed.
    """

    in_user_code = False
    transient = False


class ConfigurationError(OdtSimError):
    """A setting or an override is unknown, missing or out of range."""


class ModelError(OdtSimError):
    """A `.tflite` file is unreadable, lacks a signature, or does not fit its inputs."""


class ExportError(ModelError):
    """A Keras model cannot be exported to a trainable `.tflite`."""


class ExportWarning(UserWarning):
    """An exported file differs from the Keras model in a way that its user should know."""


class InvocationError(ModelError):
    """LiteRT fails while it runs a signature; the cause is LiteRT's exception."""


class DataError(OdtSimError):
    """Examples, labels, a partition or a split are unusable."""


class CheckpointError(OdtSimError):
    """A checkpoint or a run's record is missing, damaged or from another model."""


class VersionError(CheckpointError):
    """A checkpoint has another format version."""


class FileError(OdtSimError):
    """A file cannot be written, or is temporarily unreadable."""

    transient = True


class StrategyError(OdtSimError):
    """A strategy needs something that the model or the fleet lacks."""


class SimulationError(OdtSimError):
    """A run cannot continue: workers died, every update failed, or too few devices are left."""

    transient = True


def transient(error: Error) -> Error:
    """Return an error, marked as transient."""
    error.transient = True
    return error
