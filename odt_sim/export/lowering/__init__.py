"""Lower a traced TensorFlow graph to TFLite's built-in ops: one file per family of ops.

To add an op, write a function that states its formula under `@lowers("OpType")` in its family's file. An op with a
TFLite kernel only needs its name in `registry.KEPT`.
"""

from odt_sim.export.lowering.emission import emit
from odt_sim.export.lowering.ops import (  # noqa: F401 - each registers its lowerings
    arithmetic,
    convolution,
    depthwise,
    fourier,
    functions,
    images,
    matrices,
    pooling,
    products,
    random,
    rearranging,
    reduction,
    scattering,
    shapes,
    slicing,
    videos,
)
from odt_sim.export.lowering.trace import Trace

__all__ = ["Trace", "emit"]
