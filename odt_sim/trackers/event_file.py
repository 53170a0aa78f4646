"""Event files for TensorBoard, written without TensorFlow.

TensorBoard's own `EventFileWriter` imports TensorFlow if it is installed, which takes half a gigabyte of memory.
"""

import struct
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DataType
from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
from tensorboard.plugins.hparams.metadata import SESSION_END_INFO_TAG, create_summary_metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.metadata import create_summary_metadata as text_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

RGBA = 4
"""TensorBoard's number of the RGBA colour space."""


class EventFile:
    """A file of events; each event is on disk when its method returns."""

    def __init__(self, folder: Path, suffix: str = "") -> None:
        """Create the file; TensorBoard shows the files of a folder as one run, in the order of their names.

        Args:
            folder: The folder, which is created if it does not exist.
            suffix: The end of the file's name.
        """
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}{suffix}"
        self._file = RecordWriter((folder / name).open("xb"))
        self._write(file_version="brain.Event:2")

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers by tag."""
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self._write(step=step, summary=summary)

    def add_text(self, tag: str, markdown: str) -> None:
        """Write a text for the TEXT page."""
        tensor = TensorProto(dtype=DataType.DT_STRING, string_val=[markdown.encode()])
        value = Summary.Value(tag=tag, metadata=text_metadata(tag, None), tensor=tensor)
        self._write(summary=Summary(value=[value]))

    def add_image(self, tag: str, png: bytes) -> None:
        """Write an image for the IMAGES page."""
        width, height = struct.unpack(">II", png[16:24])  # in the first chunk, IHDR
        image = Summary.Image(encoded_image_string=png, width=width, height=height, colorspace=RGBA)
        self._write(summary=Summary(value=[Summary.Value(tag=tag, image=image)]))

    def add_hyper_parameters(self, values: Mapping[str, bool | int | float | str]) -> None:
        """Write the run's settings for the HPARAMS page."""
        self._write(summary=hparams_pb(values))

    def add_end(self, succeeded: bool) -> None:
        """Write the status of the run, for the HPARAMS page."""
        status = STATUS_SUCCESS if succeeded else STATUS_FAILURE
        data = HParamsPluginData(session_end_info=SessionEndInfo(status=status, end_time_secs=time.time()))
        value = Summary.Value(tag=SESSION_END_INFO_TAG, metadata=create_summary_metadata(data))
        self._write(summary=Summary(value=[value]))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, **content: object) -> None:
        self._file.write(Event(wall_time=time.time(), **content).SerializeToString())
        self._file.flush()
