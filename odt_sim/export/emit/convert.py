"""Convert emitted signatures to the bytes of a `.tflite` file.

The converter reads a SavedModel. `tf.saved_model.save` also writes data that only Python can load, which takes half
as long as the conversion, so the SavedModel is written here.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DT_RESOURCE
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.lite.python.convert import convert_saved_model

from odt_sim._support.system import memory_limit
from odt_sim.errors import ExportError
from odt_sim.export.emit.signatures import Signatures
from odt_sim.export.lowering.ops.control_flow import READS
from odt_sim.export.lowering.ops.creation import type_attribute
from odt_sim.export.lowering.trace import arguments_of
from odt_sim.export.trace.tracing import Function
from odt_sim.model.editing.tree import OPS, integers, kind_of, packed, unpacked, with_shared_constants
from odt_sim.model.reading.flatbuffer_fields import SUBGRAPHS, Fields

TAG = "serve"
VERSION = 1


def write_converter_input(variables: Sequence[tf.Variable], functions: Mapping[str, Function], folder: Path) -> None:
    """Write a SavedModel of functions as signatures, with the variables' current values.

    Args:
        variables: All variables that the functions use, with distinct names.
        functions: The traced function of each signature, with named outputs.
        folder: The directory to write to.
    """
    names = [v.name.partition(":")[0] for v in variables]
    if names:
        tf.raw_ops.SaveV2(
            prefix=str(folder / "variables" / "variables"),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[v.value() for v in variables],
        )
    model = SavedModel(saved_model_schema_version=VERSION)
    model.meta_graphs.append(_meta_graph(variables, names, functions))
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())


def _meta_graph(variables: Sequence[tf.Variable], names: Sequence[str], functions: Mapping[str, Function]) -> Any:
    """Return a `MetaGraphDef` of raw nodes; TensorFlow's functions also check nodes, which takes five times as long."""
    with tf.Graph().as_default() as library:
        for function in functions.values():
            function.add_to_graph(library)
    definition = tf.compat.v1.MetaGraphDef(graph_def=library.as_graph_def())
    definition.meta_info_def.tags.append(TAG)
    graph = definition.graph_def
    for v, name in zip(variables, names, strict=True):
        shared = tf.compat.v1.AttrValue(s=name.encode())
        _add(graph, "VarHandleOp", name, dtype=type_attribute(v.dtype), shape=_shape(v.shape), shared_name=shared)
    if names:
        definition.saver_def.CopyFrom(_restore(graph, variables, names))
    handles = {id(v.handle): name for v, name in zip(variables, names, strict=True)}
    bodies = {function.signature.name: function for function in graph.library.function}
    for key, function in functions.items():
        name = tf.compat.as_str(function.name)
        definition.signature_def[key].CopyFrom(_signature(graph, key, function, bodies[name], handles))
    for body in bodies.values():
        merge_equal(body)
        order_accesses(body)
        drop_unused(body)
    return definition


def _add(graph: Any, kind: str, name: str, inputs: Sequence[str] = (), **attributes: Any) -> None:
    """Add a node to a `GraphDef`; its attributes are `AttrValue`s, and those with a default may be omitted."""
    graph.node.append(tf.compat.v1.NodeDef(name=name, op=kind, input=inputs, attr=attributes))


def _shape(shape: tf.TensorShape) -> Any:
    return tf.compat.v1.AttrValue(shape=shape.as_proto())


def _types(types: Sequence[tf.DType]) -> Any:
    listed = tf.compat.v1.AttrValue.ListValue(type=[dtype.as_datatype_enum for dtype in types])
    return tf.compat.v1.AttrValue(list=listed)


def _texts(graph: Any, name: str, values: Sequence[str] | str) -> str:
    """Add a constant of strings to a `GraphDef`, and return its name."""
    tensor = tf.make_tensor_proto(values, tf.string, [] if isinstance(values, str) else [len(values)])
    _add(graph, "Const", name, dtype=type_attribute(tf.string), value=tf.compat.v1.AttrValue(tensor=tensor))
    return name


def _restore(graph: Any, variables: Sequence[tf.Variable], names: Sequence[str]) -> Any:
    """Add nodes to a `GraphDef` that set the variables from the checkpoint, and return their `SaverDef`."""
    default = _texts(graph, "checkpoint/default", "model")
    _add(graph, "PlaceholderWithDefault", "checkpoint/path", [default],
         dtype=type_attribute(tf.string), shape=_shape(tf.TensorShape([])))  # fmt: skip
    keys, slices = _texts(graph, "checkpoint/names", names), _texts(graph, "checkpoint/slices", [""] * len(names))
    types = [v.dtype for v in variables]
    _add(graph, "RestoreV2", "checkpoint/values", ["checkpoint/path", keys, slices], dtypes=_types(types))
    assigned = [f"checkpoint/{name}" for name in names]
    for i, (name, node) in enumerate(zip(names, assigned, strict=True)):
        source = f"checkpoint/values:{i}"
        _add(graph, "AssignVariableOp", node, [name, source], dtype=type_attribute(types[i]))
    _add(graph, "NoOp", "checkpoint/restored", [f"^{node}" for node in assigned])
    saver, path = tf.compat.v1.train.SaverDef, "checkpoint/path:0"
    # Readers require a tensor for saving but never run it, so the path serves as a placeholder.
    return saver(
        filename_tensor_name=path, save_tensor_name=path, restore_op_name="checkpoint/restored", version=saver.V2
    )


def _signature(graph: Any, key: str, function: Function, body: Any, handles: Mapping[int, str]) -> Any:
    """Add the call of a function to a `GraphDef`, and return the declaration of its arguments and outputs.

    The call and the function's definition `body` get the handles of all variables, even of unused ones. The converter
    requests the variables of each signature, and TensorFlow optimizes the whole graph for each request. It caches the
    optimized graph for equal requests.
    """
    specs = arguments_of(function)
    placeholders = [f"{key}_{spec.name}" for spec in specs]
    for spec, name in zip(specs, placeholders, strict=True):
        _add(graph, "Placeholder", name, dtype=type_attribute(spec.dtype), shape=_shape(spec.shape))
    captured = [handles[id(outer)] for outer in function.captured_inputs]
    unused = [name for name in handles.values() if name not in set(captured)]
    for number in range(len(unused)):
        body.signature.input_arg.add(name=f"unused_{number}", type=DT_RESOURCE)
    call, variables = f"{key}/call", [*captured, *unused]
    _add(graph, "StatefulPartitionedCall", call, [*placeholders, *variables],
         Tin=_types([*(spec.dtype for spec in specs), *[tf.resource] * len(variables)]),
         Tout=_types([t.dtype for t in function.outputs]),
         f=tf.compat.v1.AttrValue(func=tf.compat.v1.NameAttrList(name=body.signature.name)))  # fmt: skip
    signature = SignatureDef(method_name="tensorflow/serving/predict")
    for spec, name in zip(specs, placeholders, strict=True):
        signature.inputs[spec.name].CopyFrom(_declared(f"{name}:0", spec))
    for number, (name, tensor) in enumerate(sorted(function.structured_outputs.items())):
        signature.outputs[name].CopyFrom(_declared(f"{call}:{number}", tensor))
    return signature


def _declared(name: str, tensor: tf.TensorSpec | tf.Tensor) -> Any:
    return TensorInfo(name=name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto())


def merge_equal(function: Any) -> None:
    """Merge equal constants and equal reshapes of a `FunctionDef`, which are a tenth of its nodes.

    TensorFlow creates a constant for each number and list, such as axes.
    """
    first, known = dict[str, str](), dict[tuple[Any, ...], str]()
    for node in function.node_def:
        if node.op == "Const" and not node.input:
            key: tuple[Any, ...] = (node.attr["value"].SerializeToString(),)
        elif node.op == "Reshape":
            key = tuple(_merged(source, first) for source in node.input)
        else:
            continue
        if known.setdefault(key, node.name) != node.name:
            first[node.name] = known[key]
    for node in function.node_def:
        for i, source in enumerate(node.input):
            if (merged := _merged(source, first)) != source:
                node.input[i] = merged
    for name, source in function.ret.items():
        function.ret[name] = _merged(source, first)
    _keep(function, lambda name: name not in first)


def _keep(function: Any, kept: Callable[[str], bool]) -> None:
    nodes = [node for node in function.node_def if kept(node.name)]
    del function.node_def[:]
    function.node_def.extend(nodes)


def _merged(source: str, first: Mapping[str, str]) -> str:
    name, colon, place = source.partition(":")
    if name.startswith("^"):
        return f"^{first.get(name[1:], name[1:])}"
    return f"{first.get(name, name)}{colon}{place}"


def order_accesses(function: Any) -> None:
    """Make a `FunctionDef` access each variable in the order of its nodes, and run all writes.

    Functions with control outputs stay unchanged, because TensorFlow has ordered them.
    """
    if function.control_ret:
        return
    since = {argument.name: list[str]() for argument in function.signature.input_arg if argument.type == DT_RESOURCE}
    last = dict[str, str]()
    for node in function.node_def:
        for handle in dict.fromkeys(source for source in node.input if source in since):
            if node.op in READS:
                before = [last[handle]] if handle in last else []
                since[handle].append(node.name)
            else:
                before = since[handle] or ([last[handle]] if handle in last else [])
                since[handle], last[handle] = [], node.name
            node.input.extend(f"^{name}" for name in before)
    for name in dict.fromkeys(last.values()):
        function.control_ret[name] = name
        function.signature.control_output.append(name)


def drop_unused(function: Any) -> None:
    """Remove the nodes of a `FunctionDef` that no output and no write depends on."""
    nodes = {node.name: node for node in function.node_def}
    pending = [*function.ret.values(), *function.control_ret.values()]
    used = set[str]()
    while pending:
        name = pending.pop().lstrip("^").partition(":")[0]
        if name in nodes and name not in used:
            used.add(name)
            pending += nodes[name].input
    _keep(function, used.__contains__)


_CODES, _BUILTIN = 1, 3
_OPERATORS, _CODE, _INPUTS, _OUTPUTS = 3, 0, 1, 2
"""Slots of the file, an op's code, a subgraph and an op."""


def with_separate_reads(content: bytes) -> bytes:
    """Return a file in which no op takes the same read of a variable twice, or the file itself if none does."""
    root = Fields.root(content)
    reading = {i for i, code in enumerate(root.tables(_CODES)) if code.unsigned(_BUILTIN) == OPS.READ_VARIABLE}
    if not any(_repeats(list(subgraph.tables(_OPERATORS)), reading) for subgraph in root.tables(SUBGRAPHS)):
        return content
    model = unpacked(content)
    for subgraph in model.subgraphs:
        _separate(model, subgraph)
    return packed(model)


def _repeats(operators: list[Fields], reading: set[int]) -> bool:
    """Return whether an op takes the output of an op with one of the codes `reading` twice."""
    reads = {op.integers(_OUTPUTS)[0] for op in operators if op.unsigned(_CODE) in reading}
    taken = ([tensor for tensor in op.integers(_INPUTS) if tensor in reads] for op in operators)
    return any(len(set(tensors)) < len(tensors) for tensors in taken)


def _separate(model: Any, subgraph: Any) -> None:
    """Add a read for each further time that an op takes the same read."""
    reads, operators = dict[int, Any](), []
    for op in subgraph.operators:
        inputs = integers(op.inputs)
        for place, tensor in enumerate(inputs):
            if tensor in reads and tensor in inputs[:place]:
                inputs[place] = len(subgraph.tensors)
                subgraph.tensors.append(copy(subgraph.tensors[tensor]))
                operators.append(copy(reads[tensor]))
                operators[-1].outputs = np.array([inputs[place]], np.int32)
        op.inputs = np.array(inputs, np.int32)
        operators.append(op)
        if kind_of(model, op) == OPS.READ_VARIABLE:
            reads[int(op.outputs[0])] = op
    subgraph.operators = operators


def convert(signatures: Signatures, *, flex: bool = False) -> bytes:
    """Convert signatures with TFLite's built-in ops, or also with Flex ops."""
    _check_memory(signatures)
    with tempfile.TemporaryDirectory() as directory:
        write_converter_input(signatures.module.variables_of_model, signatures.functions, Path(directory))
        flex_ops = [tf.lite.OpsSet.SELECT_TF_OPS] if flex else []
        try:
            # `tf.lite.TFLiteConverter` first loads the SavedModel in Python, twice, which takes a quarter of an export.
            content = convert_saved_model(
                saved_model_dir=directory,
                saved_model_version=VERSION,
                saved_model_tags=[TAG],
                saved_model_exported_names=list(signatures.functions),
                target_ops=[tf.lite.OpsSet.TFLITE_BUILTINS, *flex_ops],
                enable_tflite_resource_variables=True,
            )
        except Exception as error:  # the converter raises private types
            line = " ".join(str(error).split())[:300]
            raise ExportError(f"TensorFlow's converter failed: {line}") from error
    return with_shared_constants(with_separate_reads(bytes(content)))


def _check_memory(signatures: Signatures) -> None:
    """Refuse a batch that needs more memory than the machine has."""
    needed, available = sum(map(_peak, signatures.functions.values())), memory_limit()
    if needed > available:
        raise ExportError(
            f"batch_size: a step needs at least {needed / 1e9:.0f} GB of memory, found {available / 1e9:.0f} GB; "
            "use a smaller model.batch_size"
        )


def _peak(function: Function) -> int:
    """Return the peak memory of a function's tensors in bytes; open sizes count as 0."""
    operations = function.graph.get_operations()
    last_use = {t.name: i for i, op in enumerate(operations) for t in op.inputs}
    released: dict[int, int] = defaultdict(int)
    live = peak = 0
    for i, op in enumerate(operations):
        for t in op.outputs:
            size = (t.shape.num_elements() or 0) * t.dtype.size
            live += size
            released[last_use.get(t.name, i)] += size
        peak = max(peak, live)
        live -= released[i]
    return peak
