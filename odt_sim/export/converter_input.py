"""Write functions that share variables as the SavedModel that TensorFlow's converter reads.

`tf.saved_model.save` also writes what only Python can load, which takes as long as half of the conversion.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DT_RESOURCE
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from odt_sim.export.lowering.calls import READS
from odt_sim.export.lowering.graph import arguments_of
from odt_sim.export.tracing import Function

TAG = "serve"
VERSION = 1


def write_converter_input(variables: Sequence[tf.Variable], functions: Mapping[str, Function], folder: Path) -> None:
    """Write a SavedModel of functions as signatures, with the variables' current values.

    Args:
        variables: All variables that the functions use, with distinct names.
        functions: A traced function with named outputs per signature.
        folder: A directory.
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
    with tf.Graph().as_default() as graph:
        handles = {
            id(v.handle): tf.raw_ops.VarHandleOp(dtype=v.dtype, shape=v.shape, shared_name=name, name=name)
            for v, name in zip(variables, names, strict=True)
        }
        saver = _restore(variables, names, list(handles.values())) if names else None
        signatures = {key: _signature(key, function, handles) for key, function in functions.items()}
    definition = tf.compat.v1.MetaGraphDef(graph_def=graph.as_graph_def(), saver_def=saver)
    definition.meta_info_def.tags.append(TAG)
    _pass_all_variables(definition.graph_def)
    for function in definition.graph_def.library.function:
        merge_constants(function)
        order_accesses(function)
    for key, signature in signatures.items():
        definition.signature_def[key].CopyFrom(signature)
    return definition


def _restore(variables: Sequence[tf.Variable], names: Sequence[str], handles: Sequence[tf.Tensor]) -> Any:
    """Return a `SaverDef` of ops in the current graph that set the variables from the checkpoint."""
    filename = tf.compat.v1.placeholder_with_default("model", [])
    values = tf.raw_ops.RestoreV2(
        prefix=filename, tensor_names=names, shape_and_slices=[""] * len(names), dtypes=[v.dtype for v in variables]
    )
    assigned = [
        tf.raw_ops.AssignVariableOp(resource=handle, value=value) for handle, value in zip(handles, values, strict=True)
    ]
    saver = tf.compat.v1.train.SaverDef
    restore = tf.group(*assigned).name
    name = filename.name  # also in place of the tensor of a save, which readers require and none runs
    return saver(filename_tensor_name=name, save_tensor_name=name, restore_op_name=restore, version=saver.V2)


def _signature(key: str, function: Function, handles: Mapping[int, tf.Tensor]) -> Any:
    """Call a function in the current graph, and return the declaration of its arguments and outputs."""
    graph = tf.compat.v1.get_default_graph()
    function.add_to_graph(graph)
    given = {
        spec.name: tf.compat.v1.placeholder(spec.dtype, spec.shape, f"{key}_{spec.name}")
        for spec in arguments_of(function)
    }
    captured = [handles[id(outer)] for outer in function.captured_inputs]
    results = tf.raw_ops.StatefulPartitionedCall(
        args=[*given.values(), *captured], Tout=[t.dtype for t in function.outputs], f=function
    )
    signature = SignatureDef(method_name="tensorflow/serving/predict")
    for name, tensor in given.items():
        signature.inputs[name].CopyFrom(_declared(tensor))
    for name, tensor in zip(sorted(function.structured_outputs), results, strict=True):
        signature.outputs[name].CopyFrom(_declared(tensor))
    return signature


def _declared(tensor: tf.Tensor) -> Any:
    return TensorInfo(name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto())


def _pass_all_variables(graph: Any) -> None:
    """Pass the variables of a `GraphDef` to the functions of all signatures, also those that a function does not use.

    The converter asks for the variables of each signature, and TensorFlow optimizes the whole graph before it answers; it
    keeps what it optimized for equal questions.
    """
    functions = {function.signature.name: function.signature for function in graph.library.function}
    handles = [node.name for node in graph.node if node.op == "VarHandleOp"]
    for call in (node for node in graph.node if node.op == "StatefulPartitionedCall"):
        signature, given = functions[call.attr["f"].func.name], set(call.input)
        for number, name in enumerate(name for name in handles if name not in given):
            call.input.append(name)
            call.attr["Tin"].list.type.append(DT_RESOURCE)
            signature.input_arg.add(name=f"unused_{number}", type=DT_RESOURCE)


def merge_constants(function: Any) -> None:
    """Merge the equal constants of a `FunctionDef`: those that TensorFlow makes of numbers and lists, such as axes."""
    places = defaultdict[bytes, list[str]](list)
    for node in function.node_def:
        if node.op == "Const" and not node.input:
            places[node.attr["value"].SerializeToString()].append(node.name)
    first = {name: names[0] for names in places.values() for name in names[1:]}
    for node in function.node_def:
        for i, source in enumerate(node.input):
            if (merged := _merged(source, first)) != source:
                node.input[i] = merged
    for name, source in function.ret.items():
        function.ret[name] = _merged(source, first)
    kept = [node for node in function.node_def if node.name not in first]
    del function.node_def[:]
    function.node_def.extend(kept)


def _merged(source: str, first: Mapping[str, str]) -> str:
    name, colon, place = source.partition(":")
    if name.startswith("^"):
        return f"^{first.get(name[1:], name[1:])}"
    return f"{first.get(name, name)}{colon}{place}"


def order_accesses(function: Any) -> None:
    """Run the reads of and writes to each variable in the order in which a `FunctionDef` lists them, and all writes.

    Functions with control outputs have been ordered by TensorFlow.
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
