"""`backend=phones`: three browsers against the simulation, and phones that leave, return or send nonsense."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from chromium import patient
from safetensors.numpy import load_file

from experiments import EXPORTED, IGNORED
from odt_sim import Fleet, Simulation, Strategy, TrainableModel, TrainingPlan
from odt_sim.cli.hydra.build import federated, model_file
from odt_sim.cli.hydra.overrides import composed
from odt_sim.data import digits, federate, iid
from odt_sim.data.dataset import Dataset
from odt_sim.errors import SimulationError
from odt_sim.persistence.records import RoundRecord
from odt_sim.phone.backend import PhonesBackend
from odt_sim.phone.frames import decode
from odt_sim.simulation.executors.executor import Executor
from odt_sim.strategies import (
    Ditto,
    FedAvg,
    FedAvgFineTune,
    FedPer,
    FedProx,
    FedRep,
    HeadOnly,
    Local,
    PerFedAvg,
    Scaffold,
)

PHONES = 3
SECONDS = 120.0  # timeout for short waits; the machine may be busy


class Running:
    """A run in a thread, so that the test can drive browsers."""

    def __init__(self, simulation: Simulation, backend: PhonesBackend, *, resume: bool = False) -> None:
        self.simulation, self.backend, self.resume = simulation, backend, resume
        self.summary: Any = None
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.summary = self.simulation.run(resume=self.resume, observers=[])
        except BaseException as error:
            self.error = error

    def address(self) -> str:
        wait(lambda: self.backend.address or self.error)
        assert not self.error, self.error
        return self.backend.address

    def finish(self) -> Any:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self.error:
            raise self.error
        return self.summary


def wait(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    until = monotonic() + seconds
    while not (found := condition()):
        assert monotonic() < until, "out of time"
        sleep(0.02)
    return found


def simulation(
    model: TrainableModel, strategy: Strategy, directory: Path, backend: Executor | None, rounds: int = 5, **fleet: Any
) -> Simulation:
    data = federate(digits(), iid, PHONES, 0)
    plan = TrainingPlan(steps=3)
    return Simulation(
        model, data, strategy, rounds=rounds, directory=directory, plan=plan, backend=backend, fleet=Fleet(**fleet)
    )


@contextmanager
def joined(browser: Any, address: str, sent: list[int] | None = None) -> Iterator[Any]:
    """A page in a separate context, which acts as a phone. The sizes of its sent frames are added to `sent`."""
    context = patient(browser.new_context(viewport={"width": 390, "height": 844}))
    page = context.new_page()
    sizes = [] if sent is None else sent
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sizes.append(len(frame))))
    page.goto(address)
    page.get_by_text("This phone is device").wait_for()
    yield page
    context.close()


@pytest.fixture
def backend(assets: Path) -> Iterator[PhonesBackend]:
    backend = PhonesBackend(phones=PHONES, host="127.0.0.1", port=0, assets=str(assets))
    yield backend
    backend.close()  # after a failed test, the run would wait for phones, and pytest for its threads


def tensors(directory: Path, round: int = 5) -> dict[str, Any]:
    """Return the server's state after a round, and the states that devices stored in it."""
    checkpoint = directory / "checkpoint"
    states = sorted(checkpoint.glob(f"devices/*/*.{round}.safetensors"))
    files = [checkpoint / f"server.{round}.safetensors", *states]
    found = {f"{path.name} {name}": tensor for path in files for name, tensor in load_file(path).items()}
    return {name: tensor for name, tensor in found.items() if tensor.dtype.kind == "f"}


def rows(directory: Path, name: str) -> list[dict[str, Any]]:
    path = directory / name
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{key: value for key, value in row.items() if key != "seconds"} for row in found]


@pytest.mark.parametrize("strategy", [FedPer(), Ditto(), Scaffold()], ids=lambda strategy: strategy.name)
def test_three_browsers_give_the_weights_of_the_simulation(
    strategy: Strategy, digits_mlp: TrainableModel, backend: PhonesBackend, browser: Any, tmp_path: Path
) -> None:
    simulated, real = tmp_path / "simulated", tmp_path / "phones"
    simulation(digits_mlp, strategy, simulated, None).run(observers=[])
    running = Running(simulation(digits_mlp, strategy, real, backend), backend)
    address = running.address()
    with joined(browser, address), joined(browser, address), joined(browser, address):
        running.finish()
    assert_same_results(real, simulated, 5)


def assert_same_results(real: Path, simulated: Path, round: int) -> None:
    expected, found = tensors(simulated, round), tensors(real, round)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, atol=1e-5, rtol=0, err_msg=name)
    for name in ("rounds.jsonl", "devices.jsonl"):
        for row, other in zip(rows(real, name), rows(simulated, name), strict=True):
            assert without_calls(row) == {
                key: pytest.approx(value, abs=1e-4) if isinstance(value, float) else value
                for key, value in without_calls(other).items()
            }


def without_calls(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out the number of inference calls, since a phone does not cache embeddings between calls."""
    return {name: value for name, value in row.items() if not name.endswith("infer_calls")}


CLOUDS = np.random.default_rng(0).normal(size=(37, 6)).astype(np.float32)
CLASSES = (CLOUDS[:, 0] > 0).astype(np.int32) + (CLOUDS[:, 1] > 0)
WORDS = np.random.default_rng(0).integers(0, 10, (37, 4)).astype(np.int32)
IDS = {"user": WORDS[:, 0] % 5, "item": WORDS[:, 1] % 6}
TARGETS = {"kind": CLASSES, "size": CLOUDS[:, :1]}
CASES: dict[str, tuple[Strategy, Any, Any, Any]] = {  # by the fixture of a model
    "adam": (Local(), CLOUDS, CLASSES, 3),  # slots that stay on the device
    "dropout": (FedAvg(), WORDS, CLASSES, 3),  # masks of the device's random state
    "grouped": (FedRep(head_epochs=2), CLOUDS, CLASSES, 3),  # the head on embeddings, and then the body
    "softmax_with_offset": (FedProx(), digits().x[:40], digits().y[:40], 10),  # the offset in the file's steps
    "small_mlp": (PerFedAvg(), CLOUDS, CLASSES, 3),  # single steps, with weights between them
    "regression": (FedAvg(), CLOUDS, CLOUDS[:, :2], None),
    "termed": (FedAvg(), CLOUDS, CLASSES, 3),  # further inputs of steps, with their defaults
    "recommender": (FedAvg(), IDS, WORDS[:, 2] % 4, 4),  # two inputs
    "recommender_of_own_loss": (FedPer(), IDS, WORDS[:, 2] % 4, 4),  # the file returns each example's loss
    "heads": (HeadOnly(), CLOUDS, TARGETS, {"kind": 3, "size": None}),  # two targets, the head on embeddings
}
SHOWN = {"regression": " MSE", "heads": " loss", "recommender_of_own_loss": " loss"}


@pytest.mark.parametrize("name", CASES)
def test_model_trains_on_a_phone_as_in_the_simulation(
    name: str, assets: Path, browser: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    strategy, x, y, classes = CASES[name]
    model = request.getfixturevalue(name)
    data = federate(Dataset("cloud", x, y, classes=classes), iid, 1, 0, method="random")
    plan = TrainingPlan(epochs=2, learning_rate=0.05)

    def simulated(directory: str, backend: Executor | None) -> Simulation:
        folder = tmp_path / directory
        return Simulation(model, data, strategy, rounds=2, directory=folder, plan=plan, backend=backend)

    simulated("simulated", None).run(observers=[])
    backend = PhonesBackend(host="127.0.0.1", port=0, assets=str(assets))
    running = Running(simulated("phone", backend), backend)
    with joined(browser, running.address()) as page:
        running.finish()
        shown = page.locator("#metric").text_content()
    assert shown.endswith(SHOWN.get(name, "% accuracy"))
    assert_same_results(tmp_path / "phone", tmp_path / "simulated", 2)


EXPERIMENTS = {**EXPORTED, "language without a word": [*EXPORTED["language"], IGNORED]}
IN_THREE = "recommendation"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_shipped_experiment_runs_on_phones_as_in_the_simulation(
    name: str, backend: PhonesBackend, browser: Any, tmp_path: Path
) -> None:
    """On one phone; one experiment runs on three phones, one of them unseen."""
    backend.phones = PHONES if name == IN_THREE else 1
    chosen = [*EXPERIMENTS[name], "strategy=fedavg_finetune", f"fleet.devices={backend.phones}", "fleet.unseen=0"]
    config = composed([f"+experiment={name.partition(' ')[0]}", *chosen])
    model, data = TrainableModel.load(model_file(config)), federated(config)
    plan, fleet = TrainingPlan(steps=4), Fleet(unseen=int(name == IN_THREE))

    def run(directory: str, backend: Executor | None) -> Simulation:
        folder = tmp_path / directory
        return Simulation(
            model, data, FedAvgFineTune(), rounds=2, directory=folder, plan=plan, fleet=fleet, backend=backend
        )

    run("simulated", None).run(observers=[])
    running = Running(run("phones", backend), backend)
    address = running.address()
    with ExitStack() as phones:
        for _ in range(backend.phones):
            phones.enter_context(joined(browser, address))
        running.finish()
    assert_same_results(tmp_path / "phones", tmp_path / "simulated", 2)


def test_reloaded_page_is_left_out_of_a_round_and_takes_part_again(
    digits_mlp: TrainableModel, backend: PhonesBackend, browser: Any, tmp_path: Path
) -> None:
    backend.phones = 2
    folder = tmp_path / "run"
    running = Running(simulation(digits_mlp, FedAvg(), folder, backend, rounds=100), backend)
    address = running.address()
    with joined(browser, address), joined(browser, address) as page:
        title = page.locator("#name").text_content()
        wait(lambda: len(rows(folder, "rounds.jsonl")) > 5)
        page.reload()
        page.get_by_text("This phone is device").wait_for()
        assert page.locator("#name").text_content() == title == "This phone is device 1"
        running.finish()
        page.get_by_text("The run has ended.").wait_for()
    rounds = rows(folder, "rounds.jsonl")
    away = [line["excluded_reasons"].get("1", "") for line in rounds]
    assert any(reason.startswith("phone is away") for reason in away)
    assert (rounds[0]["devices"], rounds[-1]["devices"], rounds[-1]["quarantined"]) == (2, 2, 0)


def test_own_examples_of_a_file_stay_in_the_browser(
    digits_mlp: TrainableModel, assets: Path, browser: Any, tmp_path: Path
) -> None:
    backend = PhonesBackend(phones=1, host="127.0.0.1", port=0, assets=str(assets), examples="own")
    running = Running(simulation(digits_mlp, FedAvg(), tmp_path / "run", backend, rounds=3), backend)
    data = digits()
    lines = [[*x.ravel().tolist(), int(y)] for x, y in zip(data.x[:50], data.y[:50], strict=True)]
    wrong, own = tmp_path / "wrong.csv", tmp_path / "own.csv"
    wrong.write_text("\n".join(",".join(map(str, [*line[:-1], 11])) for line in lines))
    own.write_text("\n".join(",".join(map(str, line)) for line in lines))
    sent: list[int] = []
    with joined(browser, running.address(), sent) as page:
        page.locator("#choose").wait_for()
        page.locator("#file").set_input_files(wrong)
        page.get_by_text("Line 1, column 65: label 11 is out of range, digits_mlp has classes 0..9; ").wait_for()
        page.locator("#file").set_input_files(own)
        page.get_by_text("30 to train, 10 to validate, 10 to test").wait_for()
        page.get_by_text("The run has ended.").wait_for()
        assert page.get_by_text("Your examples stay in this browser.").is_visible()
    running.finish()
    device = rows(tmp_path / "run", "devices.jsonl")[0]
    assert (device["train_examples"], device["validation_examples"], device["examples"]) == (30, 10, 10)
    assert sent
    assert max(sent) < 4 * digits_mlp.layout.size + 1000  # the weights, and nothing as large as the examples


def test_own_examples_of_two_inputs_come_from_a_file(
    recommender: TrainableModel, assets: Path, browser: Any, tmp_path: Path
) -> None:
    backend = PhonesBackend(host="127.0.0.1", port=0, assets=str(assets), examples="own")
    data = federate(Dataset("ids", IDS, WORDS[:, 2] % 4, classes=4), iid, 1, 0, method="random")
    run = Simulation(recommender, data, FedAvg(), rounds=2, directory=tmp_path / "run", backend=backend)
    running = Running(run, backend)
    lines = [f"{user},{item},{item % 4}" for user in range(5) for item in range(6)]
    with joined(browser, running.address()) as page:
        page.get_by_text("has one row per example: 2 inputs (user, item), then 1 target.").wait_for()
        for text in ("user,item,rating\n5,1,1", "\n".join(lines)):
            page.set_input_files("#file", {"name": "own.csv", "mimeType": "text/csv", "buffer": text.encode()})
            if text.startswith("user"):
                page.get_by_text("A device needs at least 3 examples; the file has 1.").wait_for()
        page.get_by_text("18 to train, 6 to validate, 6 to test").wait_for()
        page.get_by_text("The run has ended.").wait_for()
    running.finish()
    [device] = rows(tmp_path / "run", "devices.jsonl")
    assert (device["train_examples"], device["examples"]) == (18, 6)
    assert 0 <= device["accuracy"] <= 1


def test_phone_that_is_left_out_says_why(
    digits_mlp: TrainableModel, assets: Path, browser: Any, tmp_path: Path
) -> None:
    backend = PhonesBackend(phones=1, host="127.0.0.1", port=0, assets=str(assets), examples="own")
    running = Running(simulation(digits_mlp, FedAvg(), tmp_path / "run", backend, rounds=2), backend)
    lines = "\n".join(",".join(["1e30"] * 64 + [str(label)]) for label in range(10))
    with joined(browser, running.address()) as page:
        page.locator("#choose").wait_for()
        page.set_input_files("#file", {"name": "own.csv", "mimeType": "text/csv", "buffer": lines.encode()})
        with pytest.raises(SimulationError, match=r"left out 3 \(loss not finite on device 0;"):
            running.finish()
        page.get_by_text("The loss of this phone's training is not finite, so the run excludes it; scale").wait_for()
        assert page.locator("#status").get_attribute("class") == "notice failed"


def test_page_says_that_the_run_and_its_server_are_gone(
    digits_mlp: TrainableModel, assets: Path, browser: Any, tmp_path: Path
) -> None:
    backend = PhonesBackend(phones=1, host="127.0.0.1", port=0, assets=str(assets))
    running = Running(simulation(digits_mlp, FedAvg(), tmp_path / "run", backend, rounds=2), backend)
    with joined(browser, running.address()) as page:
        page.get_by_text("The run has ended.", exact=True).wait_for()
        summary = running.finish()
        assert page.locator("#rounds").text_content() == "Best round"
        assert page.locator("#round").text_content() == str(summary.reported_round)
        page.get_by_role("button", name="Join again").click()
        page.get_by_text("The connection to the run is lost. Joining again …").wait_for()
        page.get_by_text("The run has ended and the server has stopped.").wait_for()
        assert page.locator("#status").get_attribute("class") == "notice "
        assert page.get_by_role("button", name="Join again").is_visible()


def test_page_joins_again_by_itself_when_an_interrupted_run_is_resumed(
    digits_mlp: TrainableModel, assets: Path, browser: Any, tmp_path: Path
) -> None:
    def interrupt(record: RoundRecord) -> None:
        raise KeyboardInterrupt

    def running(port: int, resume: bool) -> Running:
        backend = PhonesBackend(phones=1, host="127.0.0.1", port=port, assets=str(assets))
        callbacks = [] if resume else [interrupt]
        data, plan = federate(digits(), iid, PHONES, 0), TrainingPlan(steps=3)
        folder = tmp_path / "run"
        run = Simulation(
            digits_mlp, data, FedAvg(), rounds=3, directory=folder, plan=plan, backend=backend, callbacks=callbacks
        )
        return Running(run, backend, resume=resume)

    first = running(0, resume=False)
    address = first.address()
    with joined(browser, address) as page:
        page.get_by_text("The run was stopped and can be resumed. Joining again …").wait_for()
        with pytest.raises(KeyboardInterrupt):
            first.finish()
        again = running(urlsplit(address).port or 0, resume=True)
        page.get_by_text("The run has ended.", exact=True).wait_for()
        assert again.finish()["rounds"] == 3


class Relay:
    """A port that forwards a run's connections, and can drop them without notifying the page."""

    def __init__(self, port: int) -> None:
        self._port, self._servers = port, list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            page, server = self._listener.accept()[0], socket.create_connection(("127.0.0.1", self._port))
            self._servers.append(server)
            Thread(target=self._answers, args=(server, page), daemon=True).start()
            Thread(target=self._requests, args=(page, server), daemon=True).start()

    def _answers(self, server: socket.socket, page: socket.socket) -> None:
        with suppress(OSError):
            while answer := server.recv(1 << 16):
                page.sendall(answer)

    def _requests(self, page: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), page:  # closed when the server does not take what the page has sent
            while request := page.recv(1 << 16):
                server.sendall(request)

    def lose(self) -> None:
        for server in self._servers:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def test_page_that_waits_joins_again_after_a_server_that_was_lost_without_a_word(
    digits_mlp: TrainableModel, assets: Path, browser: Any, tmp_path: Path
) -> None:
    backend = PhonesBackend(phones=2, host="127.0.0.1", port=0, assets=str(assets))
    running = Running(simulation(digits_mlp, FedAvg(), tmp_path / "run", backend, rounds=1), backend)
    address = running.address()
    relay = Relay(urlsplit(address).port or 0)
    context = patient(browser.new_context())
    page = context.new_page()
    page.clock.install()
    with page.expect_websocket() as opened:
        page.goto(address.replace(f":{urlsplit(address).port}/", f":{relay.port}/"))
    page.get_by_text("Waiting for the next task …").wait_for()
    with opened.value.expect_event("framesent") as sign:
        page.clock.fast_forward(20_000)
    assert decode(sign.value).header == {"do": "progress"}  # without a request, which would seem to be in progress
    relay.lose()
    page.clock.fast_forward(20_000)
    page.get_by_text("The connection to the run is lost. Joining again …").wait_for()
    with joined(browser, address):
        running.finish()
    page.get_by_text("The run has ended.", exact=True).wait_for()
    context.close()


def test_examples_of_the_personalize_page_are_used(
    digits_mlp: TrainableModel, assets: Path, browser: Any, tmp_path: Path
) -> None:
    backend = PhonesBackend(phones=1, host="127.0.0.1", port=0, assets=str(assets), examples="own")
    running = Running(simulation(digits_mlp, FedAvg(), tmp_path / "run", backend, rounds=1), backend)
    data = digits()
    items = [
        {"x": x.ravel().tolist(), "y": [int(y)], "label": str(y), "held": False}
        for x, y in zip(data.x[:10], data.y[:10], strict=True)
    ]
    with joined(browser, running.address()) as page:
        page.locator("#choose").wait_for()
        body = """async ([fingerprint, items]) => {
          const { Store } = await import('./store.js');
          await new Store(fingerprint).set('examples', items);
        }"""
        page.evaluate(body, [digits_mlp.fingerprint, [{**item, "y": [11]} for item in items]])
        page.reload()
        page.get_by_text("Example 1, column 65: label 11 is out of range").wait_for()
        assert page.locator("#choose").is_visible()
        page.evaluate(body, [digits_mlp.fingerprint, items])
        page.reload()
        page.get_by_text("6 to train, 2 to validate, 2 to test").wait_for()
        running.finish()
