"""Time one training step of each shipped model in Chromium, on LiteRT.js, and in Python.

Both run the same calls on one thread and take turns of `--seconds`. The output is the mean step of the fastest 20 ms of
all turns, which other programs disturb least, and the load of the machine.

    python benchmarks/browser.py [MODEL ...] [--turns 10] [--seconds 0.5]

A MODEL is an option of `conf/model`. Needs Chromium and the npm packages of `make test-phone`.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

TESTS = Path(__file__).resolve().parents[1] / "tests" / "phone"
sys.path.insert(0, str(TESTS))

from chromium import OPTIONS, PAGE, program, served  # noqa: E402
from recording import Recording, encoded  # noqa: E402

from odt_sim import TrainableModel  # noqa: E402
from odt_sim.cli.hydra.build import model_file  # noqa: E402
from odt_sim.cli.hydra.overrides import composed  # noqa: E402

MODELS = """linear softmax digits_mlp digits_cnn character_lstm har_cnn mnist_cnn transformer_encoder mobilenet_transfer
mobilenet_v2 mobilenet resnet8""".split()  # noqa: SIM905
FURTHER = {"mobilenet_transfer": ["model.build.weights=null"]}


class Turns:
    """Repeated timing of one model's training step in both runtimes.

    Attributes:
        rows: The rows of a batch.
        python: The fewest milliseconds of a step in Python.
        chromium: The fewest milliseconds of a step in Chromium.
    """

    def __init__(self, page: Any, name: str) -> None:
        model = TrainableModel.load(model_file(composed([f"model={name}", *FURTHER.get(name, [])])))
        self._recording = Recording(model)
        self._recording.train()
        self._inputs = self._recording.calls[0].inputs
        self.rows = model.batch_size
        self.python = self.chromium = float("inf")
        given = {"file": encoded(model.content), "call": self._recording.calls[0].packed()}
        self._repeat = page.evaluate_handle("async (given) => (await import('./replay.js')).repeater(given)", given)

    def run(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            count, start = 0, time.perf_counter()
            while (taken := time.perf_counter() - start) < 0.02:
                self._recording.run("train", self._inputs)
                count += 1
            self.python = min(self.python, 1000 * taken / count)
        here = self._repeat.evaluate("(repeat, seconds) => repeat(seconds)", seconds)
        self.chromium = min(self.chromium, here)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="*", metavar="MODEL", default=MODELS)
    arguments.add_argument("--turns", type=int, default=10)
    arguments.add_argument("--seconds", type=float, default=0.5)
    chosen = arguments.parse_args()
    folders = {"": TESTS, "page": PAGE, "assets": TESTS / "node_modules"}
    print("| model, batch | Python, ms | Chromium, ms | Chromium / Python | load |\n|---|---|---|---|---|")
    with served(folders) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=OPTIONS)
        for name in chosen.models:
            page = browser.new_page()
            page.goto(f"{address}/harness.html")
            turns = Turns(page, name)
            for _ in range(chosen.turns):
                turns.run(chosen.seconds)
            ratio = turns.chromium / turns.python
            figures = f"{turns.python:.3g} | {turns.chromium:.3g} | {ratio:.2g} | {os.getloadavg()[0]:.1f}"
            print(f"| {name}, {turns.rows} | {figures} |", flush=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
