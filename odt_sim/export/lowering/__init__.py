"""From a traced TensorFlow graph to one of TFLite's built-in ops: a file for each family of ops.

To add an op, write a function that states its formula under `@lowers("OpType")` in its family's file. An op that TFLite
has a kernel for needs its name in `registry.KEPT` only.
"""

from odt_sim.export.lowering import (  # noqa: F401 - each registers its lowerings
    activation,
    arithmetic,
    batch_normalization,
    convolution,
    depthwise,
    pooling,
    random,
    reduction,
    shapes,
    slicing,
    variables,
)
from odt_sim.export.lowering.graph import Trace, emit

__all__ = ["Trace", "emit"]
