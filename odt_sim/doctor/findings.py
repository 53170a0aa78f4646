"""The findings of `odt-sim doctor`, declared once for the page in the terminal, the JSON and `docs/doctor.md`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Attributes:
        id: Its id, which never changes: D1xx the file, D2xx ops and borders, D3xx weights and state, D4xx the loss, D5xx the
            step, D6xx inference.
        title: What is wrong, in a few words.
        explanation: Why it matters.
        remedy: What to do.
        prevents: Whether the file cannot be trained as it should.
    """

    id: str
    title: str
    explanation: str
    remedy: str
    prevents: bool = False


@dataclass(frozen=True)
class Finding:
    """Something that was found in a file.

    Attributes:
        kind: Its kind.
        where: The signature, variable or op; empty for the whole file.
        found: What was found, in one line.
    """

    kind: Kind
    where: str
    found: str


UNREADABLE = Kind(
    "D101",
    "not a readable .tflite file",
    "The file is not a flatbuffer with the identifier TFL3, or its tables point outside the file.",
    "Copy the file again from its source, or convert the model again.",
    prevents=True,
)
UNLOADABLE = Kind(
    "D102",
    "the runtime cannot load the file",
    "The runtime rejects the file before any signature runs: it does not support an op, or a tensor does not fit.",
    "Read the runtime's reason. For Flex ops, see D201; for a newer op, update ai-edge-litert; otherwise convert the "
    "model again.",
    prevents=True,
)
CRASH = Kind(
    "D103",
    "the runtime crashes, hangs or runs out of memory",
    "The trial runs in a separate process with limits on time and memory. That process did not exit normally, and "
    "the app would not either.",
    "Convert the model again with a smaller batch; if it still crashes, report it to the LiteRT project.",
    prevents=True,
)
NO_TRAIN = Kind(
    "D104",
    "no signature trains",
    "No signature takes examples and targets, returns a loss and assigns variables, so the file can only run "
    "inference.",
    "Export the Keras model with odt_sim.export.export_model. If a signature with another name trains, name it: "
    "--signature train=NAME. If the file is one of several that form a model, join them into one that trains: "
    "odt-sim join OUT bottleneck=FILE train_head=FILE optimizer=FILE.",
    prevents=True,
)
NO_INFER = Kind(
    "D105",
    "no signature infers",
    "Accuracy and the loss are computed from the outputs of inference, a signature that takes examples only.",
    "Export a signature that returns the logits, or name it: --signature infer=NAME.",
    prevents=True,
)
NO_SIGNATURES = Kind(
    "D106",
    "the file has no signatures",
    "Only its main function can be called, with positional arguments. If a model consists of several such files, the "
    "app passes the weights between them.",
    "Convert the model with named signatures: tf.saved_model.save(..., signatures=...) and "
    "TFLiteConverter.from_saved_model(..., signature_keys=...). To join several files of one model, use odt-sim "
    "join.",
)
REFUSED = Kind(
    "D107",
    "odt_sim refuses the file",
    "The file was read and its signatures ran, but it lacks something that the simulation needs.",
    "Follow the error, which says what is missing.",
    prevents=True,
)
STATIC_BATCH = Kind(
    "D108",
    "the batch size is fixed",
    "Each call takes exactly this many rows. If the file takes sample weights, odt_sim fills the last batch with "
    "repeated rows of weight 0; otherwise it leaves rows out or counts some twice.",
    "Nothing, if the size suits your devices. Otherwise export with another batch_size: None (any number of rows) "
    "for a Keras model; for a PyTorch module a number, at most that of a device's examples. In a tf.function, [None, "
    "...] in the input signature allows any size.",
)
SIGNATURE_FAILS = Kind(
    "D109",
    "a signature fails",
    "The signature does not run on inputs of the declared shapes and types.",
    "Read the runtime's reason. Declare the shapes that the graph was traced with, then convert again.",
    prevents=True,
)

FLEX_IN_STEP = Kind(
    "D201",
    "the step needs Flex ops",
    "Flex ops are ops of full TensorFlow. LiteRT has no kernels for them in Python, nor on a phone without the Flex "
    "library, so the signature cannot run there.",
    "Rewrite them to built-in ops: odt-sim deflex FILE OUT. To simulate the file with them, use backend.runtime=flex "
    "and TensorFlow 2.19.",
    prevents=True,
)
FLEX_ELSEWHERE = Kind(
    "D202",
    "another signature needs Flex ops",
    "The signature cannot run on LiteRT, but training does not need it, and LiteRT still loads the file.",
    "Rewrite Save and Restore to the signatures parameters and restore: odt-sim deflex FILE OUT.",
)
CUSTOM_OPS = Kind(
    "D203",
    "ops that no available runtime supports",
    "The file contains custom ops, which only its author's app registers.",
    "Convert the model without custom ops (allow_custom_ops=False names the TensorFlow ops behind them).",
    prevents=True,
)
NO_BROWSER_TYPE = Kind(
    "D204",
    "an input or output that LiteRT.js rejects",
    "LiteRT.js rejects a file if any signature takes or returns a type other than float32, int32 or uint8. Inside "
    "the graph any type is fine.",
    "Cast inside the signature: take labels as int32 and return int32, as odt_sim's own exports do.",
)
LOST_ACTIVATION = Kind(
    "D205",
    "an activation was lost in the conversion",
    "TensorFlow's converter drops relu, relu6 and clipping to -1..1 right after a matrix product without a bias if a "
    "signature assigns its weights. The file then computes something different from the original model.",
    "Export the model with odt_sim.export (export_model or convert_saved_model), which keeps activations, or add a "
    "bias variable before the activation and convert again.",
    prevents=True,
)

NOT_FINITE = Kind(
    "D301",
    "NaN or infinite values in the shipped weights",
    "Each output and gradient that depends on such a value is NaN too, so the first step destroys the model.",
    "Train again and check the weights before the conversion: the usual cause is training that diverged.",
    prevents=True,
)
UNINITIALIZED = Kind(
    "D302",
    "variables that nothing initializes",
    "The signature reads variables that have no initial value in the file. LiteRT fails, or returns arbitrary memory.",
    "Call the signature that assigns them first, if there is one (initialize, restore). A SavedModel contains the "
    "values of Keras 3 variables only if an attribute of the tf.Module refers to them: before saving, add self.held "
    "= [v.value for v in (*self.model.variables, *self.optimizer.variables)], and convert it again. Or export the "
    "model with odt_sim.export.export_model.",
    prevents=True,
)
NO_READER = Kind(
    "D303",
    "no signature returns the weights",
    "Federated averaging sends weights. Without a signature that returns them, nothing that a device learns can "
    "leave it.",
    "Export a signature that returns every weight. odt_sim adds one to its copy of the file, which has the variables.",
)
NO_WRITER = Kind(
    "D304",
    "no signature sets the weights",
    "A device whose weights cannot be set starts every round from the shipped ones.",
    "Export a signature that assigns every weight. odt_sim adds one to its copy of the file.",
)
UNSAVED = Kind(
    "D305",
    "state that no signature saves",
    "Training changes these variables, such as an optimizer's slots, and no other signature reads or sets them. An "
    "app loses them when it closes, so momentum and Adam start over.",
    "Return them from a signature and assign them in another. odt_sim adds both to its copy of the file.",
)
OTHER_ORDER = Kind(
    "D306",
    "weights are read in a different order than they are written",
    "The value written under one name comes back under another. An app that saves the weights it reads scrambles its "
    "model when it restores them.",
    "Use one list of variables for both signatures. Sorting names as text puts a10 before a2.",
    prevents=True,
)
NOT_WRITTEN = Kind(
    "D307",
    "restoring leaves weights unchanged",
    "A value that was written does not come back, so restoring mixes old and new weights.",
    "Assign every variable that the reading signature returns.",
    prevents=True,
)

WRONG_SHAPE = Kind(
    "D401",
    "a declared shape that the graph refuses",
    "The signature fails with the shape that it declares, and runs with another one. Callers follow the declaration.",
    "Correct the shape in the tf.TensorSpec of the input, then convert again.",
)
RUNNING_MEAN = Kind(
    "D402",
    "the loss is a mean over all calls so far",
    "A Keras metric accumulates over calls. After some steps the value hardly changes, whatever the model learns.",
    "Return the loss of the batch itself, not a metric's result(). odt_sim's evaluation computes the loss from "
    "inference.",
)
SWAPPED = Kind(
    "D403",
    "the loss has its arguments swapped",
    "The loss was called with predictions as targets. Its gradient is wrong, so training optimizes something else.",
    "Keras losses take the targets first: loss(y, model(x)).",
    prevents=True,
)
SUMMED = Kind(
    "D404",
    "the loss is a sum over the batch",
    "The gradient grows with the number of rows in the batch, so a learning rate fits only one batch size.",
    "Return the mean over the rows, or divide the learning rate by the batch size.",
)
AFTER_STEP = Kind(
    "D405",
    "the loss is computed after the step",
    "The signature computes the loss again after it has changed the weights: twice the work, and lower values than "
    "other files report.",
    "Return the loss from which the gradient was computed.",
)
UNEXPLAINED = Kind(
    "D406",
    "the loss cannot be computed from inference",
    "No common loss of the outputs of inference and these targets equals the loss that the step returns. Penalties, "
    "a custom loss, Dropout and BatchNormalization in training mode are harmless reasons; a wrong output of "
    "inference is not.",
    "Set the loss for evaluations (model.loss), and compare both on your own examples.",
)
LOSS_NOT_FINITE = Kind(
    "D407",
    "the loss is not a finite number",
    "A step on small random examples returns NaN or infinity.",
    "See D301 if the weights are not finite; otherwise look for a logarithm or a division by zero in the loss.",
    prevents=True,
)

NO_CHANGE = Kind(
    "D501",
    "a step changes nothing",
    "The weights after a step are bit for bit those before it.",
    "Apply the gradients inside the signature: optimizer.apply_gradients, or variable.assign_sub.",
    prevents=True,
)
PARTIAL_CHANGE = Kind(
    "D502",
    "a step leaves weights unchanged",
    "Steps on random examples change some weights but not others. They may be frozen on purpose, or behind a ReLU "
    "that is 0 for random examples.",
    "If they should be trained, pass them to the gradient (model.trainable_variables) and to the optimizer.",
)
DIVERGES = Kind(
    "D503",
    "a step makes weights NaN or infinite",
    "After a few steps on small random examples, weights are no longer finite.",
    "Lower the learning rate, clip gradients, or look for a division by zero in the gradient.",
    prevents=True,
)

RANDOM_INFERENCE = Kind(
    "D601",
    "inference is random",
    "The same input produces different outputs: Dropout or noise is still in training mode.",
    "Trace inference with model(x, training=False).",
)
BATCH_DEPENDENT = Kind(
    "D602",
    "inference of a row depends on the other rows",
    "BatchNormalization is in training mode, so the prediction for one example depends on the rest of the batch.",
    "Trace inference with model(x, training=False).",
)
INFERENCE_TRAINS = Kind(
    "D603",
    "inference changes variables",
    "Inference changes the model: it updates moving averages, or takes a step.",
    "Trace inference with model(x, training=False), without assignments.",
)


def kinds() -> list[Kind]:
    """Return all kinds in the order of their ids."""
    return sorted((value for value in globals().values() if isinstance(value, Kind)), key=lambda kind: kind.id)
