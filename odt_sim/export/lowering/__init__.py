"""Lower a traced TensorFlow graph to TFLite's built-in ops: one file per family of ops.

To add an op, write a function that states its formula under `@lowers("OpType")` in its family's file. An op with a
TFLite kernel only needs its name in `registry.KEPT`.
"""

from odt_sim.export.lowering import (  # noqa: F401 - each registers its lowerings
    activation,
    arithmetic,
    batch_normalization,
    colors,
    convolution,
    depthwise,
    distributions,
    image_transform,
    joins,
    linear_equations,
    pooling,
    random,
    reduction,
    resizing,
    shapes,
    slicing,
    tables,
    variables,
)
from odt_sim.export.lowering.graph import Trace, emit

__all__ = ["Trace", "emit"]
