"""Measure what the check of an export costs: time and memory of exports with and without it, in turn.

    python benchmarks/export_check.py --turns 3 [MODEL ...]

Each export runs in a new process. The time is that of `export_model`, without TensorFlow's start.
"""

import argparse
import json
import statistics
import subprocess
import sys

MODELS = ("mnist_cnn", "character_lstm", "transformer_encoder", "mobilenet_v2", "resnet50")

EXPORT = """
import json, resource, sys, tempfile, time
name, check = sys.argv[1], sys.argv[2] == "True"
import keras
from omegaconf import OmegaConf
from odt_sim.export import export_model
from odt_sim._support.user_code import imported
keras.utils.set_random_seed(0)
if name == "resnet50":
    built = keras.applications.ResNet50(weights=None, classes=10, classifier_activation=None)
    spec = {"loss": "sparse_categorical_crossentropy", "optimizer": {"name": "SGD"}, "batch_size": 8}
else:
    spec = OmegaConf.to_container(OmegaConf.load(f"conf/model/{name}.yaml"), resolve=False)
    arguments = dict(spec["build"])
    built = imported(arguments.pop("_target_"), "model")(**arguments)
model, example = built if isinstance(built, tuple) else (built, None)
with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
    before = time.perf_counter()
    export_model(model, file.name, example=example, loss=spec["loss"], optimizer=dict(spec["optimizer"]),
                 batch_size=spec["batch_size"], check=check)
    seconds = time.perf_counter() - before
print(json.dumps({"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def export(name: str, check: bool) -> dict[str, float]:
    """Return the seconds and the peak memory in MB of one export."""
    command = [sys.executable, "-c", EXPORT, name, str(check)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    print("model: seconds without and with the check, the check's seconds and share; MB without and with")
    for name in options.models:
        pairs = [(export(name, False), export(name, True)) for _ in range(options.turns)]
        one, other = (statistics.median(pair[i]["seconds"] for pair in pairs) for i in range(2))
        extra = statistics.median(pair[1]["seconds"] - pair[0]["seconds"] for pair in pairs)
        memory = [statistics.median(pair[i]["memory"] for pair in pairs) for i in range(2)]
        print(f"{name}: {one:.2f} {other:.2f} s, {extra:.2f} s, {extra / one:.0%}; {memory[0]:.0f} {memory[1]:.0f} MB")


if __name__ == "__main__":
    main()
