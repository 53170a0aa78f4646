"""Every error that odt_sim raises on purpose.

OdtSimError
├── ConfigurationError   a setting or an override is unknown, missing or out of its range
├── ModelError           a `.tflite` file is unreadable, lacks a signature, or does not fit what it is given
│   ├── ExportError      a Keras model cannot become a trainable `.tflite`
│   └── InvocationError  LiteRT fails while it runs a signature on what it is given
├── DataError            examples, labels, a partition or a split are unusable
├── CheckpointError      a checkpoint or a run's record is missing, damaged or of another model
│   └── VersionError     a checkpoint is of another version of its format
├── FileError            a file cannot be written, or cannot be read for now
├── StrategyError        a strategy needs what the model or the fleet lacks
└── SimulationError      a run cannot go on: workers died, every update failed, too few devices are left

Each message is one line that names what, where, what was expected, what was found, and what to do.
"""


class OdtSimError(Exception):
    """The root of all errors that odt_sim raises on purpose."""


class ConfigurationError(OdtSimError):
    """A setting or an override is unknown, missing or out of its range."""


class ModelError(OdtSimError):
    """A `.tflite` file is unreadable, lacks a signature, or does not fit what it is given."""


class ExportError(ModelError):
    """A Keras model cannot become a trainable `.tflite`."""


class InvocationError(ModelError):
    """LiteRT fails while it runs a signature on what it is given; the cause is what LiteRT raised."""


class DataError(OdtSimError):
    """Examples, labels, a partition or a split are unusable."""


class CheckpointError(OdtSimError):
    """A checkpoint or a run's record is missing, damaged or of another model."""


class VersionError(CheckpointError):
    """A checkpoint is of another version of its format: whole, as far as this odt_sim can tell."""


class FileError(OdtSimError):
    """A file cannot be written, or cannot be read for now, be it whole or not."""


class StrategyError(OdtSimError):
    """A strategy needs what the model or the fleet lacks."""


class SimulationError(OdtSimError):
    """A run cannot go on: workers died, every update failed, or too few devices are left."""
