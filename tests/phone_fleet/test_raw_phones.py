"""`backend=phones` with phones that leave, return, are slow, or send invalid messages."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from queue import Empty
from threading import Event
from time import sleep
from typing import Any

import numpy as np
import pytest
from command_process import COMMAND
from raw_phones import SECONDS, Answer, RawPhone, Running, opened, reply, wait
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

from odt_sim import Fleet, TrainableModel
from odt_sim.errors import CheckpointError, ConfigurationError, ModelError, SimulationError, StrategyError
from odt_sim.model.contract.browsers import check_for_browsers
from odt_sim.persistence.storage import Folder
from odt_sim.phone.backend import PhonesBackend
from odt_sim.phone.frames import Message, decode, encode
from odt_sim.phone.phones import SILENCE, Examples, Phone, PhoneError, Phones
from odt_sim.settings import Profiles
from odt_sim.strategies import KNNPer

SIZE = 650  # of the softmax regression


def in_round(number: int, do: str, answer: Answer) -> Answer:
    """Return an answer function for one kind of request in one round's training; all others are answered as usual."""

    def chosen(phone: RawPhone, message: Message) -> bytes | None:
        wanted = (message.header["round"], message.header["kind"], message.header["do"]) == (number, "train", do)
        return answer(phone, message) if wanted else None

    return chosen


BAD: dict[str, tuple[str, Callable[[Message], bytes], str]] = {
    "loss of NaN": ("train", lambda m: reply(m, {"losses": np.full(2, np.nan, np.float32)}), "loss not finite"),
    "weights of NaN": ("read", lambda m: reply(m, {"weights": np.full(SIZE, np.nan, np.float32)}), "update not finite"),
    "another model's weights": (
        "read",
        lambda m: reply(m, {"weights": np.zeros(7, np.float32)}),
        "phone sent weights of another model: expected float32 [650], found float32 [7]",
    ),
    "no weights": (
        "read",
        lambda m: reply(m, {}),
        "phone sent weights of another model: expected float32 [650], found nothing",
    ),
    "integers": (
        "read",
        lambda m: reply(m, {"weights": np.zeros(SIZE, np.int32)}),
        "phone sent weights of another model: expected float32 [650], found int32 [650]",
    ),
    "fewer losses": (
        "train",
        lambda m: reply(m, {"losses": np.ones(1, np.float32)}),
        "phone sent losses of another model: expected float32 [2], found float32 [1]",
    ),
    "failure": (
        "train",
        lambda m: encode(Message({"do": "failed", "id": m.header["id"], "error": "out of\nmemory"})),
        "failed in LiteRT.js: out of memory",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_reply_excludes_the_phone_from_the_round_only(case: str, softmax: TrainableModel, tmp_path: Path) -> None:
    do, answer, reason = BAD[case]
    running = Running(softmax, tmp_path / "run")
    good = RawPhone(running.address, "a")
    bad = RawPhone(running.address, "b", in_round(1, do, lambda phone, m: answer(m)))
    running.finish()
    first, second = running.lines("rounds.jsonl")
    assert first["excluded_reasons"] == {"1": reason}
    assert (first["devices"], second["devices"], second["excluded"]) == (1, 2, 0)
    wait(lambda: good.ended and bad.ended)
    assert good.ended == bad.ended == "The run has ended."


FIGURES: dict[str, tuple[dict[str, Any], str]] = {
    "no number of examples": ({"examples": None}, "examples: expected 180, found null"),
    "a huge number of examples": ({"examples": 10**400}, f"examples: expected 180, found 1{'0' * 19}"),
    "a column of the row": ({"device": 77}, "expected accuracy, loss, balanced_accuracy, auc, found device"),
    "an impossible accuracy": ({"accuracy": 5.0}, "accuracy: expected 0 to 1 or null, found 5.0"),
}


@pytest.mark.parametrize("case", FIGURES)
def test_bad_figures_exclude_the_phone_and_the_run_ends(case: str, softmax: TrainableModel, tmp_path: Path) -> None:
    sent, reason = FIGURES[case]

    def answer(phone: RawPhone, message: Message) -> bytes | None:
        if message.header["do"] != "evaluate" or message.header["split"] != "test":
            return None
        figures = {**phone.figures(message), **sent}
        return encode(Message({"do": "done", "id": message.header["id"], "figures": figures, "calls": 1}))

    running = Running(softmax, tmp_path / "run")
    RawPhone(running.address, "a")
    RawPhone(running.address, "b", answer)
    running.finish()
    first, second = running.lines("devices.jsonl")
    assert (first["device"], first["accuracy"]) == (0, 0.5)
    assert (second["device"], second["seen"], second["examples"], second.get("accuracy")) == (1, True, 180, None)
    assert second["not_evaluated"] == f"phone sent wrong metrics: {reason}"
    assert [line["devices"] for line in running.lines("rounds.jsonl")] == [2, 2]


CUT: dict[str, tuple[Callable[[RawPhone, Message], Any], str]] = {
    "cut message": (
        lambda phone, m: phone.socket.send(reply(m, {"weights": np.zeros(SIZE, np.float32)})[:-100]),
        "phone is away: sent an invalid message",
    ),
    "text": (lambda phone, m: phone.socket.send("hello"), "phone is away: sent an invalid message"),
    "message over the limit": (lambda phone, m: phone.socket.send(bytes(10 << 20)), "phone is away: left"),
    "closed page": (lambda phone, m: phone.socket.close(), "phone is away: left"),
}


@pytest.mark.parametrize("case", CUT)
def test_phone_that_is_lost_in_a_round_takes_part_again(case: str, softmax: TrainableModel, tmp_path: Path) -> None:
    act, reason = CUT[case]
    running = Running(softmax, tmp_path / "run", rounds=3)
    back = Event()
    # The first phone ends the round when the second one is back.
    RawPhone(running.address, "a", in_round(2, "read", lambda phone, m: None if back.wait(10) else b""))
    lost = RawPhone(running.address, "b", in_round(2, "read", lambda phone, m: act(phone, m) or b""))
    lost.thread.join(10)
    again = RawPhone(running.address, "b")
    assert again.welcome.header["device"] == lost.welcome.header["device"] == 1
    sleep(0.1)  # until it has reported that it is ready
    back.set()
    running.finish()
    rounds = running.lines("rounds.jsonl")
    assert [line["devices"] for line in rounds] == [2, 1, 2]
    assert rounds[1]["excluded_reasons"] == {"1": reason}


def test_phone_that_is_away_is_not_quarantined_and_not_evaluated(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", rounds=5, fleet=Fleet(quarantine_after=2))
    RawPhone(running.address, "a")
    RawPhone(running.address, "b", in_round(1, "train", lambda phone, m: phone.socket.close() or b""))
    running.finish()
    reasons = [line["excluded_reasons"].get("1") for line in running.lines("rounds.jsonl")]
    assert reasons[0] == "phone is away: left"
    assert reasons[1:] == ["phone is away: not connected"] * 4
    assert [line["quarantined"] for line in running.lines("rounds.jsonl")] == [0] * 5
    first, second = running.lines("devices.jsonl")
    assert first["accuracy"] == 0.5
    assert second["not_evaluated"] == "phone is away: not connected"
    assert (second["train_examples"], second["examples"]) == (538, 180)


def test_slow_phone_is_timed_out_and_its_late_answer_ignored(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", fleet=Fleet(timeout=0.5))
    RawPhone(running.address, "a")
    RawPhone(running.address, "b", in_round(1, "train", lambda phone, m: sleep(0.8)))
    running.finish()
    first, second = running.lines("rounds.jsonl")
    assert first["excluded_reasons"] == {"1": "timed out"}
    assert second["excluded_reasons"].get("1") in (None, "timed out")


def test_silent_phone_is_asleep(softmax: TrainableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The phone is alone, since on a busy machine another phone may be silent for as long."""
    monkeypatch.setattr("odt_sim.phone.phones.SILENCE", 0.3)
    running = Running(softmax, tmp_path / "run", rounds=1, devices=1)
    RawPhone(running.address, "a", in_round(1, "train", lambda phone, m: b""))
    with pytest.raises(SimulationError, match=r"phone is away: sent nothing for 0\.3 s"):
        running.finish()


class Replies:
    """The queue of a phone whose messages follow a simulated clock, at intervals of some seconds."""

    def __init__(self, phone: Phone, messages: Sequence[tuple[float, str]]) -> None:
        self._phone, self._coming, self._here = phone, [*messages], list[Any]()

    def put(self, item: Any) -> None:
        self._here.append(item)

    def get(self, timeout: float) -> Any:
        while not self._here:
            seconds, do = self._coming.pop(0)
            if seconds > timeout:
                raise Empty
            timeout -= seconds
            self._phone.receive(encode(Message({"do": do, "id": 1})))
        return self._here.pop(0)


def test_progress_keeps_a_slow_phone_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message restarts the wait, here after 59 of 60 seconds; the next phone sleeps for 61 seconds."""

    def phone(*messages: tuple[float, str]) -> Phone:
        made = Phone(0, Examples(40, 10, 10), lambda frame: None, lambda sentence, again: None)
        monkeypatch.setattr(made, "_replies", Replies(made, messages))
        return made

    progress = [(SILENCE - 1, "progress")] * 3
    assert phone(*progress, (SILENCE - 1, "done")).ask({}, {}, None).header["do"] == "done"
    with pytest.raises(PhoneError, match="sent nothing for 60 s"):
        phone(*progress, (SILENCE + 1, "done")).ask({}, {}, None)


def test_progress_is_no_reply(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", rounds=1, devices=1)

    def reporting(phone: RawPhone, message: Message) -> None:
        phone.socket.send(encode(Message({"do": "progress", "id": message.header["id"]})))

    RawPhone(running.address, "a", in_round(1, "train", reporting))
    running.finish()
    assert running.lines("rounds.jsonl")[0]["devices"] == 1


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (b"", "message of 0 bytes: expected a frame of odt_sim; reload the page"),
        ("hello", "text message: expected a binary frame of odt_sim; reload the page"),
        (encode(Message({"do": "join"})), "The page did not identify this phone; reload it."),
        (encode(Message({"do": "join", "phone": "short"})), "The page did not identify this phone; reload it."),
    ],
)
def test_invalid_start_ends_with_a_sentence(
    first: bytes | str, sentence: str, softmax: TrainableModel, tmp_path: Path
) -> None:
    running = Running(softmax, tmp_path / "run", devices=1, rounds=1)
    with closing(opened(running.address)) as socket:
        socket.send(first)
        header = decode(bytes(socket.recv(10))).header
        assert (header["sentence"], header["failed"]) == (sentence, True)
    RawPhone(running.address)
    running.finish()


@pytest.mark.parametrize(
    ("ready", "sentence"),
    [
        ({"fingerprint": "other"}, "This page has loaded a different model than the run; reload it."),
        ({"test": 0}, "A device needs at least 1 example to train and 1 to test, found 40 and 0; add examples."),
        ({"train": "many"}, "The page did not send its number of examples; reload it."),
        ({"train": 1 << 30}, "The page did not send its number of examples; reload it."),
    ],
)
def test_phone_that_does_not_fit_is_told_why(
    ready: dict[str, Any], sentence: str, softmax: TrainableModel, tmp_path: Path
) -> None:
    running = Running(softmax, tmp_path / "run", devices=1, rounds=1, examples="own")
    phone = RawPhone(running.address, **ready)
    wait(lambda: phone.ended)
    assert phone.ended == sentence
    RawPhone(running.address)
    running.finish()


def test_phone_counts_the_examples_that_the_run_sent(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", devices=1, rounds=1)
    phone = RawPhone(running.address, train=1_000_000)
    wait(lambda: phone.ended)
    assert phone.ended == "This page has a different number of examples than the run sent; reload it."
    RawPhone(running.address)
    running.finish()


def test_phone_gets_the_task_and_the_metrics_of_the_model(softmax: TrainableModel, tmp_path: Path) -> None:
    assert softmax.manifest
    outputs = (replace(softmax.outputs[0], task="regression"),)
    model = replace(softmax, manifest=replace(softmax.manifest, outputs=outputs))
    running = Running(model, tmp_path / "run", devices=1, rounds=1)
    welcome = RawPhone(running.address).welcome.header
    [output] = welcome["outputs"]
    assert (output["task"], output["metrics"][:4]) == ("regression", ["mse", "mae", "loss", "r2"])
    assert welcome["metric"] == {"name": "mse", "title": "MSE", "percent": False}
    running.finish()


def test_phone_beyond_the_fleet_is_refused(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", devices=2, rounds=1)
    RawPhone(running.address, "a")
    with closing(joining(running.address, "b")):
        refused = RawPhone(running.address, "c").welcome.header
    assert refused["sentence"].startswith("The run has 2 devices, and other phones occupy all of them")
    assert refused["failed"]
    RawPhone(running.address, "b")
    running.finish()


def joining(address: str, name: str) -> ClientConnection:
    """Open a page that knows its device but has not loaded the model yet."""
    socket = opened(address)
    socket.send(encode(Message({"do": "join", "phone": name * 32})))
    assert decode(bytes(socket.recv(30))).header["do"] == "welcome"
    return socket


def test_phone_that_never_was_ready_takes_no_device(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", devices=2, rounds=1)
    refused = RawPhone(running.address, "c", fingerprint="other")
    wait(lambda: refused.ended)
    with closing(joining(running.address, "d")), closing(joining(running.address, "d")):
        assert RawPhone(running.address, "a").welcome.header["device"] == 1

    def taken() -> bool:  # once the server has noticed that both pages are closed
        return RawPhone(running.address, "b").welcome.header.get("device") == 0

    wait(taken)
    running.finish()
    assert running.lines("rounds.jsonl")[0]["devices"] == 2
    recorded = json.loads((tmp_path / "run" / "checkpoint" / "phones.json").read_text())
    assert sorted(recorded["devices"].values()) == [0, 1]


def test_tab_that_closes_early_leaves_the_device_to_another_tab(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", devices=2, rounds=1)
    with closing(joining(running.address, "a")):
        assert RawPhone(running.address, "a").welcome.header["device"] == 0
    assert RawPhone(running.address, "b").welcome.header["device"] == 1
    running.finish()


def test_phone_that_leaves_before_the_first_round_frees_its_device(
    softmax: TrainableModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    running = Running(softmax, folder, devices=3, rounds=2)
    scanner = RawPhone(running.address, "e")
    RawPhone(running.address, "b")
    printed = wait_until_printed(capsys, "2 of 3")
    scanner.close()
    printed += wait_until_printed(capsys, "1 of 3")
    chrome = RawPhone(running.address, "c")
    assert chrome.welcome.header["device"] == scanner.welcome.header["device"] == 0
    printed += wait_until_printed(capsys, "2 of 3")
    last = RawPhone(running.address, "d", in_round(1, "train", lambda phone, m: phone.socket.close() or b""))
    running.finish()
    assert [line["devices"] for line in running.lines("rounds.jsonl")] == [2, 2]
    assert re.findall(r"to begin: (\d of \d)", printed)[-3:] == ["2 of 3", "1 of 3", "2 of 3"]
    running = Running(softmax, folder, devices=3, rounds=3, resume=True)
    refused = RawPhone(running.address, "e").welcome.header
    assert refused["sentence"].startswith("The run has 3 devices, and other phones occupy all of them")
    again = [RawPhone(running.address, name).welcome.header["device"] for name in "dcb"]
    assert again == [last.welcome.header["device"], 0, 1] == [2, 0, 1]
    running.finish()


def wait_until_printed(capsys: pytest.CaptureFixture[str], text: str) -> str:
    printed = ""

    def found() -> bool:
        nonlocal printed
        printed += capsys.readouterr().err
        return text in printed

    wait(found)
    return printed


def test_run_that_ended_before_its_first_round_gives_numbers_anew(softmax: TrainableModel, tmp_path: Path) -> None:
    phones = Phones(1, Folder(tmp_path))
    phones.record()
    with phones.joining("a" * 32) as device:
        assert device == 0
    with Phones(1, Folder(tmp_path)).joining("b" * 32) as device:
        assert device == 0


def test_second_tab_replaces_the_first(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", devices=2, rounds=1)
    first, second = RawPhone(running.address, "a"), RawPhone(running.address, "a")
    wait(lambda: first.ended)
    assert first.ended == "This device was opened in another tab, which now takes part instead."
    RawPhone(running.address, "b")
    running.finish()
    assert second.weights.size == SIZE


def test_wrong_token_and_foreign_page_are_refused(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", devices=1, rounds=1)
    token = running.address.split("/")[3]
    for address, origin in (
        (running.address.replace(token, "guessed"), None),
        (running.address, "http://foreign.test"),
    ):
        with pytest.raises(InvalidStatus, match="403"):
            opened(address, origin=origin)
    RawPhone(running.address)
    running.finish()


def test_resumed_run_keeps_its_address_and_its_phones(softmax: TrainableModel, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    running = Running(softmax, folder, rounds=2)
    token = running.address.split("/")[3]
    RawPhone(running.address, "a")
    RawPhone(running.address, "b")
    running.finish()
    running = Running(softmax, folder, rounds=3, resume=True)
    assert running.address.split("/")[3] == token
    last = RawPhone(running.address, "b")
    assert last.welcome.header["device"] == 1
    RawPhone(running.address, "a")
    assert running.finish()["rounds"] == 3
    assert "aaaa" not in (folder / "checkpoint" / "phones.json").read_text()


def test_complete_run_that_is_resumed_waits_for_no_phones(softmax: TrainableModel, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    running = Running(softmax, folder, rounds=2)
    RawPhone(running.address, "a")
    RawPhone(running.address, "b")
    summary = running.finish()
    results = {name: (folder / name).read_bytes() for name in ("devices.jsonl", "summary.json", "model.tflite")}
    resumed = Running(softmax, folder, rounds=2, resume=True)
    assert resumed.finish() == summary
    assert not resumed.backend.address
    assert {name: (folder / name).read_bytes() for name in results} == results


def test_damaged_record_of_phones_is_reported(softmax: TrainableModel, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    running = Running(softmax, folder, devices=1, rounds=1)
    RawPhone(running.address)
    running.finish()
    (folder / "checkpoint" / "phones.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"phones\.json: damaged"):
        Running(softmax, folder, devices=1, rounds=2, resume=True).finish()


def test_too_few_phones_end_the_run_and_it_can_be_resumed(softmax: TrainableModel, tmp_path: Path) -> None:
    running = Running(softmax, tmp_path / "run", fleet=Fleet(min_devices=2))
    good = RawPhone(running.address, "a")
    RawPhone(running.address, "b", in_round(2, "train", lambda phone, m: reply(m, {})))
    with pytest.raises(SimulationError, match=r"round 2: 1 device contributed, fleet\.min_devices is 2"):
        running.finish()
    wait(lambda: good.ended)
    assert (good.ended, good.again) == ("The run has failed and can be resumed.", True)
    running = Running(softmax, tmp_path / "run", fleet=Fleet(min_devices=2), resume=True)
    good = RawPhone(running.address, "a")
    RawPhone(running.address, "b")
    assert running.finish()["rounds"] == 2
    wait(lambda: good.ended)
    assert (good.ended, good.again) == ("The run has ended.", False)


STOPPED_EARLY = (
    *("backend=phones", "backend.host=127.0.0.1", "backend.port=0", "backend.examples=own", "fleet.devices=1"),
    *("fleet.unseen=0", "split.validation=0", "strategy=fedavg_finetune", "run.rounds=9", "run.evaluate_every=1"),
    *("run.until=plateau", "run.patience=1", "model=tflite", "partition=iid", "hydra.run.dir=run"),
)


@pytest.mark.slow
def test_run_ends_by_the_validation_examples_that_only_phones_have(softmax: TrainableModel, tmp_path: Path) -> None:
    command = [*COMMAND, "run", *STOPPED_EARLY, f"model.path={softmax.where}"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stderr
        printed = ""
        while not (address := re.search(r"http\S+", printed)):
            printed += child.stderr.readline() or pytest.fail(printed)
        RawPhone(address[0])
        printed += child.communicate(timeout=SECONDS)[1]
    assert child.returncode == 0, printed
    assert "makes choices on validation examples" not in printed
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stopped"] == "validation accuracy did not improve in 1 evaluation, round 2"


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"strategy": KNNPer()}, StrategyError, r"strategy knn_per: reads the devices' examples .* backend=ray"),
        (
            {"fleet": Fleet(hostile=1)},
            ConfigurationError,
            r"fleet\.hostile: expected 0 with backend=phones, .* found 1",
        ),
        ({"phones": 3}, ConfigurationError, r"backend\.phones: expected at most fleet\.devices, 2, found 3"),
        (
            {"fleet": Fleet(profiles=Profiles("phones"))},
            ConfigurationError,
            r"fleet\.profiles: expected null with backend=phones, .* found phones",
        ),
    ],
)
def test_runs_that_phones_do_not_support_are_refused(
    settings: dict[str, Any],
    kind: type[Exception],
    message: str,
    softmax_with_embedding: TrainableModel,
    tmp_path: Path,
) -> None:
    with pytest.raises(kind, match=message):
        Running(softmax_with_embedding, tmp_path / "run", **settings).finish()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"phones": 0}, "backend.phones: expected at least 1 or null, found 0"),
        ({"port": 70000}, "backend.port: expected 0 to 65535, found 70000"),
        ({"examples": "all"}, "backend.examples: expected slices or own, found 'all'"),
        ({"key": "key.pem"}, "backend.certificate: needs backend.key"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PhonesBackend(**settings)


def test_model_that_browsers_cannot_run_is_refused(any_rows: TrainableModel) -> None:
    with pytest.raises(ModelError, match=r"takes any number of rows, which LiteRT\.js cannot run"):
        check_for_browsers(any_rows)


def test_taken_port_is_named_as_the_setting(softmax: TrainableModel, tmp_path: Path) -> None:
    first = Running(softmax, tmp_path / "first", devices=1, rounds=1)
    port = int(first.address.split(":")[2].split("/")[0])
    with pytest.raises(ConfigurationError, match=rf"backend\.port {port}: another program listens there"):
        Running(softmax, tmp_path / "second", devices=1, rounds=1, port=port).finish()
    RawPhone(first.address)
    first.finish()
