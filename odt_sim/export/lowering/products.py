"""Matrix products at rank 3; independent products of an unrolled loop's iterations become one product.

Each time step of a recurrent layer multiplies its inputs by the same kernel, and adds its part to the kernel's gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from odt_sim.export.lowering.constants import reshaped
from odt_sim.export.lowering.registry import Deferred, Memo, Value, lowers, tensor_of
from odt_sim.export.lowering.windows import sum_of


@dataclass(frozen=True, eq=False)
class Product(Deferred):
    """A product of two matrices, or of their transposes, which may become a part of a larger product."""

    a: tf.Tensor
    b: tf.Tensor
    transpose_a: bool = False
    transpose_b: bool = False

    def tensor(self) -> tf.Tensor:
        """Compute the product at rank 3.

        At rank 2, the converter uses FULLY_CONNECTED, which is slow with variable weights, and loses a ReLU or a clip right
        after it.
        """
        a, b = tf.expand_dims(self.a, 0), tf.expand_dims(self.b, 0)
        return tf.squeeze(tf.matmul(a, b, transpose_a=self.transpose_a, transpose_b=self.transpose_b), 0)


@lowers("MatMul")
def matmul(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute C = A B."""
    a, b = inputs
    own = Product(a, b, op.get_attr("transpose_a"), op.get_attr("transpose_b"))
    if _multiplies_each_part(op) and own.a.op.type == "Unpack":
        return [_product_of_whole(own, memo)[own.a.value_index]]
    users = {user.type for user in op.outputs[0].consumers()}
    deferred = users == ({"AddN"} if own.transpose_a else {"Pack"}) and own.a.dtype == tf.float32
    return [own if deferred else own.tensor()]


@lowers("BatchMatMulV2")
def batch_matmul(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute C[i] = A[i] B[i] for the leading axes i, which broadcast."""
    a, b = inputs
    adjoint_a, adjoint_b = op.get_attr("adj_x"), op.get_attr("adj_y")
    if len(a.shape) == len(b.shape) == 2:
        return [Product(a, b, adjoint_a, adjoint_b).tensor()]
    return [tf.matmul(a, b, adjoint_a=adjoint_a, adjoint_b=adjoint_b)]


@lowers("AddN", deferred=True)
def add_n(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Compute Y = the sum of the inputs; by one product if all are A^T B, for several A and B."""
    products = [own for own in inputs if isinstance(own, Product) and own.transpose_a and not own.transpose_b]
    if len(products) < max(2, len(inputs)):
        return [sum_of([tensor_of(own) for own in inputs])]
    products.reverse()  # a gradient starts with the last time step, whose rows come last in the input
    a, b = (_joined(parts, memo) for parts in ([own.a for own in products], [own.b for own in products]))
    return [Product(a, b, transpose_a=True).tensor()]


@lowers("Pack", deferred=True)
def pack(op: tf.Operation, inputs: list[Value], memo: Memo) -> list[Value]:
    """Stack the inputs along a new axis; products A B of several A and one B become one product."""
    axis = op.get_attr("axis")
    kernels = {(own.b.ref(), own.transpose_b) for own in inputs if isinstance(own, Product) and not own.transpose_a}
    if axis != 0 or len(kernels) != 1 or not all(isinstance(own, Product) and not own.transpose_a for own in inputs):
        return [tf.stack([tensor_of(own) for own in inputs], axis)]
    rows = _joined([own.a for own in inputs], memo)
    product = Product(rows, inputs[0].b, transpose_b=inputs[0].transpose_b).tensor()
    return [reshaped(product, [len(inputs), -1, product.shape[1]])]


def _joined(parts: Sequence[tf.Tensor], memo: Memo) -> tf.Tensor:
    """Return the rows of several matrices as one matrix, memoized."""
    key = ("rows", *(own.ref() for own in parts))
    if key not in memo:
        memo[key] = tf.concat(parts, 0)
    return memo[key]


def _multiplies_each_part(op: tf.Operation) -> bool:
    """Return whether a traced product, and others by the same kernel, multiply all matrices of an unpacked tensor."""
    parts = op.inputs[0].op
    if parts.type != "Unpack" or parts.get_attr("axis") != 0 or op.inputs[0].dtype != tf.float32:
        return False
    return not op.get_attr("transpose_a") and all(
        any(
            user.type == "MatMul" and user.inputs[0] is part and _kernel(user) == _kernel(op)
            for user in part.consumers()
        )
        for part in parts.outputs
    )


def _kernel(product: tf.Operation) -> tuple[str, bool]:
    """Return the name of a traced product's kernel, the same for each read of a variable, and whether it is transposed."""
    kernel = product.inputs[1]
    read = kernel.op.type == "ReadVariableOp"
    return (kernel.op.inputs[0] if read else kernel).name, product.get_attr("transpose_b")


def _product_of_whole(own: Product, memo: Memo) -> list[tf.Tensor]:
    """Return the products of all matrices of an unpacked tensor by one kernel, memoized."""
    whole = own.a.op.inputs[0]
    key = ("products", whole.ref(), own.b.ref(), own.transpose_b)
    if key not in memo:
        count, _, size = whole.shape
        rows = Product(reshaped(whole, [-1, size]), own.b, transpose_b=own.transpose_b).tensor()
        memo[key] = tf.unstack(reshaped(rows, [count, -1, rows.shape[1]]))
    return list(memo[key])
