"""Import the graph of a `.tflite` file into TensorFlow: one file per family of ops.

To add a built-in op, write a function decorated by `@imports("NAME")` in its family's file. A Flex op contains its
TensorFlow op.
"""

from odt_sim.export.importing import arithmetic, control_flow, products, shapes  # noqa: F401 - each registers its ops
from odt_sim.export.importing.program import Program

__all__ = ["Program"]
