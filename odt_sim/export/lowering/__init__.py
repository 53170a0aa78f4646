"""Lower a traced TensorFlow graph to TFLite's built-in ops: one file per family of ops.

To add an op, write a function that states its formula under `@lowers("OpType")` in its family's file. An op with a
TFLite kernel only needs its name in `registry.KEPT`.
"""

from odt_sim.export.lowering import (  # noqa: F401 - each registers its lowerings
    activation,
    arithmetic,
    batch_normalization,
    colors,
    concatenation,
    convolution,
    convolution_3d,
    cumulation,
    depthwise,
    distributions,
    fake_quantization,
    fourier,
    image_transform,
    integer_products,
    integers,
    linear_equations,
    pooling,
    pooling_3d,
    predicates,
    products,
    random,
    rearranging,
    reduction,
    resizing,
    scattering,
    shapes,
    slicing,
    space_to_batch,
    special_functions,
    sums_of_products,
    tables,
    triangular,
    trigonometry,
    variables,
)
from odt_sim.export.lowering.emission import emit
from odt_sim.export.lowering.trace import Trace

__all__ = ["Trace", "emit"]
