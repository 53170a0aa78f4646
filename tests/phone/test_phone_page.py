"""The page of `odt-sim phone` in Chromium: it checks, measures, personalizes, and reports errors in one sentence."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import module, patient
from safetensors.numpy import load_file
from safetensors.numpy import save as save_tensors

from odt_sim import Device, TrainableModel, Weights
from odt_sim.data import digits
from odt_sim.data.store.columns import rows_of
from odt_sim.deploy.models import personal_model
from odt_sim.fleet.profile import DeviceProfile, Timing
from odt_sim.phone.app import phone_app
from odt_sim.phone.recording import Recording, record
from odt_sim.phone.routes import phone_routes
from odt_sim.phone.server import Server, address_of, listen
from odt_sim.phone.subject import Subject

TOKEN = "t0ken"
PYTHON = {name: Timing(16, 1.0, 0.9, 1.1, 10) for name in ("train", "infer")}
WITHOUT_RELAXED_SIMD = """
  const instantiate = WebAssembly.instantiate;
  WebAssembly.instantiate = (bytes, ...rest) =>
    bytes.byteLength < 200 ? Promise.reject(new Error("no such instruction")) : instantiate(bytes, ...rest);
"""
"""LiteRT.js then loads its file without fused multiplications and additions, as on phones that lack them."""
STROKES = {"1": [[(0.5, 0.1), (0.5, 0.9)]], "7": [[(0.2, 0.1), (0.8, 0.1), (0.4, 0.9)]]}


@dataclass
class Site:
    """A server on loopback, and the requests of its pages."""

    address: str
    profiles: Path


Open = Callable[..., Any]


@pytest.fixture
def site(assets: Path, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Return a function that serves a subject until the test ends."""

    @contextmanager
    def served(subject: Subject, recording: Recording | None = None) -> Iterator[Site]:
        routes = phone_routes(subject, recording or record(subject), PYTHON, tmp_path / "profiles")
        listening = listen("127.0.0.1", 0)
        with Server(phone_app(TOKEN, "127.0.0.1", assets=assets, routes=routes), listening):
            yield Site(address_of(listening, TOKEN), tmp_path / "profiles")

    with ExitStack() as servers:
        yield lambda *given: servers.enter_context(served(*given))


@pytest.fixture
def opened(browser: Any, site: Callable[..., Site]) -> Iterator[Callable[..., tuple[Any, Site]]]:
    """Return a function that serves a subject and opens its page in a browser without stored data."""
    context = patient(browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True))

    def open_page(*given: Any) -> tuple[Any, Site]:
        own = site(*given)
        page = context.new_page()
        ready(page, own.address)
        return page, own

    yield open_page
    context.close()


def ready(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#tabs:not([hidden]), #status.failed")


def press(page: Any, text: str) -> None:
    page.locator(f'section button:text-is("{text}"):visible').click()


def cells(page: Any, section: str) -> list[list[str]]:
    return [row.locator("th, td").all_inner_texts() for row in page.locator(f"#{section} tbody tr").all()]


@cache
def digit_subject(model: TrainableModel) -> Subject:
    data = digits()
    return Subject.of(model, data.x, data.y, "data digits")


@pytest.mark.parametrize(
    "name",
    [
        "adam",  # slots
        "regression",
        "softmax_with_offset",
        "recommender_of_own_loss",  # two inputs
        "heads",  # two targets, and embeddings
        "word_tagger",  # a mask
        "termed",  # train groups, and further inputs of steps
    ],
)
def test_every_signature_gives_the_results_of_python(
    name: str, opened: Callable[..., tuple[Any, Site]], request: pytest.FixtureRequest
) -> None:
    configured = request.getfixturevalue("configured")
    model: TrainableModel = configured(name) if name == "word_tagger" else request.getfixturevalue(name)
    page, _ = opened(Subject.random(model))
    press(page, "Run the check")
    verdict = page.wait_for_selector("#check .notice.good, #check .notice.failed").inner_text()
    assert verdict == f"Equal: all {len(model.signatures)} signatures match Python."
    rows = cells(page, "check")
    assert {row[0] for row in rows} == set(model.signatures)
    assert all(float(difference) < 1e-5 and result == "equal" for _, _, difference, result in rows)


def test_result_that_differs_is_named(opened: Callable[..., tuple[Any, Site]], softmax: TrainableModel) -> None:
    subject = digit_subject(softmax)
    honest = record(subject)
    loss = next(call for call in honest.calls if call["signature"] == "train")["outputs"]["loss"]["start"]
    values = bytearray(honest.values)
    values[loss : loss + 4] = (np.frombuffer(values[loss : loss + 4], np.float32) * 1.001).tobytes()
    page, _ = opened(subject, replace(honest, values=bytes(values)))
    press(page, "Run the check")
    verdict = page.wait_for_selector("#check .notice.failed").inner_text()
    assert verdict == "Not equal: train of 4 signatures differ from Python."
    assert [row[0] for row in cells(page, "check") if row[3] == "not equal"] == ["train"]


def test_measured_profile_is_uploaded_and_read_by_python(
    opened: Callable[..., tuple[Any, Site]], softmax: TrainableModel
) -> None:
    page, site = opened(digit_subject(softmax))
    page.click("#tab-measure")
    press(page, "Measure")
    page.wait_for_selector("#measure table")
    for stored in ("my-phone.json", "my-phone-2.json"):
        page.fill("#device-name", "My phone!")
        press(page, "Upload")
        page.wait_for_selector(f'#measure .notice.good:has-text("{stored}")')
    profile = DeviceProfile.read(site.profiles / "my-phone-2.json")
    train = profile.timings["train"]
    assert (profile.name, profile.model, profile.fingerprint) == ("My phone!", softmax.name, softmax.fingerprint)
    assert 0 < train.lower_quartile <= train.median <= train.upper_quartile
    assert profile.relative_speed == pytest.approx(PYTHON["train"].median / train.median)
    assert profile.cores
    assert profile.measured.startswith("20")
    page.fill("#device-name", "!!!")
    press(page, "Upload")
    failed = page.wait_for_selector("#measure .notice.failed").inner_text()
    assert "profile.name: expected a name with a letter or a digit, found '!!!'" in failed
    assert len(list(site.profiles.iterdir())) == 2


def draw(page: Any, digit: str, shift: float) -> None:
    canvas = page.locator("canvas.canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    for stroke in STROKES[digit]:
        points = [(box["x"] + box["width"] * (x + shift), box["y"] + box["height"] * y) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=5)
        page.mouse.up()


def train(page: Any, seconds: float) -> list[list[str]]:
    press(page, "Train")
    page.wait_for_timeout(1000 * seconds)
    press(page, "Stop")
    page.wait_for_selector('#personalize .notice:has-text("Stopped; the weights are saved.")')
    return cells(page, "personalize")


def saved(page: Any) -> Path:
    with page.expect_download() as download:
        press(page, "Download the weights")
    return Path(download.value.path())


def downloaded(page: Any) -> dict[str, np.ndarray[Any, Any]]:
    return load_file(saved(page))


def assert_downloaded(page: Any, expected: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Assert that the page's weights are the expected ones, to the bit."""
    for name, array in downloaded(page).items():
        np.testing.assert_array_equal(array, expected[name])


def test_drawn_digits_personalize_the_model_and_stay_in_the_browser(
    opened: Callable[..., tuple[Any, Site]], softmax: TrainableModel, tmp_path: Path
) -> None:
    page, site = opened(digit_subject(softmax))
    requests: list[Any] = []
    page.on("request", lambda request: requests.append(request))
    page.click("#tab-personalize")
    press(page, "Train")
    sentence = page.wait_for_selector("#personalize .notice.failed").inner_text()
    assert sentence.startswith("Add at least two examples of one class")
    remove = page.get_by_role("button", name="Remove the last")
    assert not remove.is_visible()  # there is none
    draw(page, "1", 0.0)
    page.click('[data-label="1"]')
    remove.click()
    remove.wait_for(state="hidden")
    page.wait_for_selector('#personalize :text("No examples yet.")')
    for digit in STROKES:
        for shift in (0.0, 0.02, -0.03):
            draw(page, digit, shift)
            page.wait_for_selector('#reading:has-text("The model reads")')
            page.click(f'[data-label="{digit}"]')
    page.wait_for_selector('#personalize :text("4 examples to train, 2 held out to measure (outlined).")')
    rows = train(page, 1.5)
    assert [re.sub(r"\d+", "n", row[0]) for row in rows] == ["before", "n s"]
    assert rows[0][1] == "0"
    assert int(rows[1][1].replace(",", "")) > 10
    assert rows[1][3] == "100% of 2"
    trained = downloaded(page)
    assert {name: array.shape for name, array in trained.items()} == {p.name: p.shape for p in softmax.parameters}
    device = Device(softmax, (digits().x, digits().y))
    file = saved(page)
    assert softmax.fingerprint.encode() in file.read_bytes()
    device.restore(file)
    for name, array in trained.items():
        np.testing.assert_array_equal(device.weights[name], array)

    ready(page, site.address + "#personalize")
    page.reload()
    page.wait_for_selector('#personalize .notice.good:has-text("Restored your weights of")')
    assert cells(page, "personalize") == rows
    draw(page, "7", 0.01)
    page.wait_for_selector('#reading:has-text("The model reads 7")')
    assert_downloaded(page, trained)

    press(page, "Delete the weights")
    page.wait_for_selector('#personalize .notice:has-text("The weights are deleted")')
    press(page, "Delete the examples")
    page.wait_for_selector('#personalize :text("No examples yet.")')
    page.reload()
    page.wait_for_selector('#personalize :text("No examples yet.")')
    assert cells(page, "personalize") == []
    assert page.locator("#personalize .notice:visible").count() == 0
    initial = downloaded(page)
    assert any(not np.array_equal(initial[name], trained[name]) for name in trained)
    page.set_input_files("#weights", {"name": "mine", "mimeType": "", "buffer": file.read_bytes()})
    page.wait_for_selector('#personalize .notice.good:has-text("The model has the weights of mine.")')
    ready(page, site.address + "#personalize")
    page.reload()
    page.wait_for_selector('#personalize .notice.good:has-text("Restored your weights of")')
    assert_downloaded(page, trained)

    sent = [request for request in requests if not request.url.startswith(("blob:", "data:"))]
    assert sent
    assert all(request.method == "GET" and request.post_data is None for request in sent)
    assert all(request.url.startswith(site.address.partition(TOKEN)[0]) for request in sent)


def reading(page: Any) -> str:
    """Return the page's text with the model's reading of the digit."""
    text: str = page.wait_for_selector('#reading:has-text("The model reads")').inner_text()
    return text


def test_shown_reading_is_of_the_current_weights(
    opened: Callable[..., tuple[Any, Site]], softmax: TrainableModel
) -> None:
    page, _ = opened(digit_subject(softmax))
    page.click("#tab-personalize")
    for shift in (0.0, 0.02, -0.03):
        draw(page, "7", shift)
        page.click('[data-label="7"]')
    draw(page, "7", 0.0)
    initial = reading(page)
    train(page, 1.0)
    page.wait_for_selector('#reading:has-text("The model reads 7")')
    trained, file = reading(page), saved(page)
    assert trained != initial
    press(page, "Delete the weights")
    page.wait_for_selector(f'#reading:text-is("{initial}")')
    page.set_input_files("#weights", file)
    page.wait_for_selector(f'#reading:text-is("{trained}")')


def test_nothing_runs_over_the_edge_of_a_narrow_screen(
    opened: Callable[..., tuple[Any, Site]], softmax: TrainableModel
) -> None:
    width = 320
    page, _ = opened(digit_subject(softmax))
    page.set_viewport_size({"width": width, "height": 740})
    for tab in page.locator("#tabs button").all():
        tab.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.bounding_box()["x"] + tab.bounding_box()["width"] <= width


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (
            {"a": np.zeros(2, np.float32)},
            r"expected (\S+) of F32 \[64,10\], found only a; choose weights of this model\.",
        ),
        (None, r"not a \.safetensors file; choose one that this page saved\."),
    ],
)
def test_weights_of_another_model_are_refused(
    tensors: Any, sentence: str, harness: Any, softmax: TrainableModel
) -> None:
    content = save_tensors(tensors) if tensors else b"weights"
    assert re.fullmatch(sentence, refusal(harness, content, softmax) or "")


def test_weights_of_another_version_of_the_model_are_refused(harness: Any, softmax: TrainableModel) -> None:
    tensors = {p.name: np.zeros(p.shape, np.float32) for p in softmax.parameters}
    expected = "contains weights of another version of this model; choose weights of this file."
    assert refusal(harness, save_tensors(tensors, {"fingerprint": "f" * 64}), softmax) == expected
    assert refusal(harness, save_tensors(tensors), softmax) is None
    assert refusal(harness, save_tensors(tensors, {"fingerprint": softmax.fingerprint}), softmax) is None


def test_cut_file_of_weights_is_refused(harness: Any, softmax: TrainableModel) -> None:
    content = save_tensors({p.name: np.zeros(p.shape, np.float32) for p in softmax.parameters})
    assert re.fullmatch(
        r"truncated within \S+; save the weights again\.", refusal(harness, content[:-1], softmax) or ""
    )


def refusal(page: Any, content: bytes, model: TrainableModel) -> str | None:
    """Return the page's error for a file of weights; None if it loads them."""
    parameters = [{"name": p.name, "shape": p.shape} for p in model.parameters]
    given = {"content": list(content), "parameters": parameters, "fingerprint": model.fingerprint}
    body = """
      const content = Uint8Array.from(given.content);
      try { m.weightsOf(content, given.parameters, given.fingerprint) } catch (error) { return error.message }
    """
    message: str | None = module(page, "safetensors", body, given)
    return message


def regression_rows() -> np.ndarray[Any, Any]:
    x = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    return np.concatenate([x, x[:, :1] * 2, x[:, 1:2] - 1], axis=1)


def choose(page: Any, name: str, content: bytes) -> None:
    page.set_input_files("#rows", {"name": name, "mimeType": "text/csv", "buffer": content})


def test_drawings_are_black_on_white_where_the_data_are(
    opened: Callable[..., tuple[Any, Site]], softmax: TrainableModel
) -> None:
    data = digits()
    page, _ = opened(Subject.of(softmax, 1 - data.x, data.y, "inverted digits"))
    page.click("#tab-personalize")
    draw(page, "1", 0.0)
    page.wait_for_selector('#reading:has-text("The model reads")')
    corner = "document.querySelector('.pixels').getContext('2d').getImageData(0, 0, 8, 8).data"
    greys = np.array(page.evaluate(f"Array.from({corner})")).reshape(8, 8, 4)[:, :, 0]
    assert greys[:, 0].min() == 255
    assert greys[4, 3:5].max() < 200
    row = ",".join(map(str, [*(1 - data.x[0]).ravel().tolist(), 0]))
    choose(page, "digits.csv", f"{row}\n{row}\n".encode())
    page.wait_for_selector('#personalize :text("1 example to train, 1 held out to measure (outlined).")')


def test_rows_of_a_file_personalize_a_regression(
    opened: Callable[..., tuple[Any, Site]], regression: TrainableModel, tmp_path: Path
) -> None:
    page, _ = opened(Subject.random(regression))
    page.click("#tab-personalize")
    rows = regression_rows()
    np.save(tmp_path / "rows.npy", rows)
    page.set_input_files("#rows", tmp_path / "rows.npy")
    page.wait_for_selector('#personalize :text("20 examples to train, 10 held out to measure.")')
    table = train(page, 1.5)[1:]  # after the counts
    assert float(table[-1][3]) < 0.05 * float(table[0][3])
    press(page, "Delete the examples")
    lines = "\n".join(",".join(map(str, row)) for row in rows.tolist())
    choose(page, "rows.csv", f"a,b,c,d,e,f,g,h\n{lines}\n".encode())
    page.wait_for_selector('#personalize :text("Kept 30 examples of rows.csv.")')


def test_training_that_diverges_restores_the_weights(
    opened: Callable[..., tuple[Any, Site]], regression: TrainableModel
) -> None:
    page, _ = opened(Subject.random(regression))
    page.click("#tab-personalize")
    press(page, "Train")
    page.wait_for_selector('#personalize .notice.failed:has-text("Add at least two examples")')
    rows = regression_rows()
    lines = ["\n".join(",".join(map(str, row)) for row in each.tolist()) for each in (rows, 30_000 * rows)]
    choose(page, "rows.csv", lines[0].encode())
    page.wait_for_selector('#personalize :text("Kept 30 examples of rows.csv.")')
    assert page.locator("#personalize .notice.failed:visible").count() == 0
    trained = train(page, 1.0)[-1]
    before = downloaded(page)
    choose(page, "unscaled.csv", lines[1].encode())
    page.wait_for_selector('#personalize :text("Kept 30 examples of unscaled.csv.")')
    press(page, "Train")
    sentence = page.wait_for_selector("#personalize .notice.failed").inner_text()
    assert re.fullmatch(
        r"The loss of step \d+ is (NaN|Infinity)\. The previous weights are restored; scale .*", sentence
    )
    page.wait_for_selector('button:text-is("Train")')
    assert_downloaded(page, before)
    page.reload()
    page.wait_for_selector('#personalize .notice.good:has-text("Restored your weights of")')
    assert cells(page, "personalize")[-1] == trained
    assert_downloaded(page, before)


def test_kept_weights_that_are_not_finite_are_not_restored(
    opened: Callable[..., tuple[Any, Site]], regression: TrainableModel
) -> None:
    page, _ = opened(Subject.random(regression))
    page.click("#tab-personalize")
    initial = downloaded(page)
    body = """async (fingerprint) => {
      const { Store } = await import('./store.js');
      const state = { weights: { a0: Float32Array.of(NaN) }, slots: null };
      await new Store(fingerprint).set('weights', { state, history: [], saved: 'Monday' });
    }"""
    page.evaluate(body, regression.fingerprint)
    page.reload()
    page.wait_for_selector('#personalize .notice.failed:has-text("The kept weights are not finite;")')
    assert_downloaded(page, initial)


def test_examples_with_several_labels_are_rows(
    opened: Callable[..., tuple[Any, Site]], several_labels: TrainableModel
) -> None:
    page, _ = opened(Subject.random(several_labels))
    assert "3 labels · batches of 4" in page.inner_text("#facts")
    page.click("#tab-personalize")
    x = np.random.default_rng(0).normal(size=(60, 6))
    lines = "\n".join(",".join(map(str, row)) for row in np.concatenate([x, x[:, :3] > 0], axis=1).tolist())
    choose(page, "labels.csv", lines.encode())
    page.wait_for_selector('#personalize :text("40 examples to train, 20 held out to measure.")')
    assert cells(page, "personalize") == [["all", "60", "20"]]
    figures = train(page, 1.5)[1:]
    assert float(figures[-1][3]) > 0.75
    assert "Micro F1 on held-out examples" in page.locator("#personalize th").all_inner_texts()


@pytest.fixture(scope="session")
def text_tagger(configured: Callable[[str], TrainableModel]) -> TrainableModel:
    return configured("word_tagger")


def taught(name: str, count: int = 60) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Return rows of a file that a model can learn, and the headings of the metrics that the page then shows."""
    random = np.random.default_rng(0)
    if name == "recommender":  # two ids, and the rating of the item
        user, item = random.integers(0, 5, count), random.integers(0, 6, count)
        return np.stack([user, item, item % 4], axis=1), ["Accuracy on held-out examples"]
    if name == "heads":  # two targets
        x = random.normal(size=(count, 6))
        rows = np.concatenate([x, (x[:, :1] > 0) + 1.0 * (x[:, 1:2] > 0), x[:, 2:3]], axis=1)
        return rows, ["Accuracy of kind on held-out examples", "MSE of size on held-out examples"]
    words = random.integers(1, 41, (count, 10)) * (np.arange(10) < random.integers(3, 11, (count, 1)))
    return np.concatenate([words, words % 4], axis=1), ["Accuracy on held-out examples"]  # 0 pads


FORMS = {
    "recommender": "2 inputs (user, item), then 1 target.",
    "heads": "6 inputs, then 2 targets (kind, size).",
    "text_tagger": "10 inputs, then 10 targets.",
}


@pytest.mark.parametrize("name", FORMS)
def test_rows_personalize_models_of_several_inputs_targets_and_masks(
    name: str, opened: Callable[..., tuple[Any, Site]], request: pytest.FixtureRequest
) -> None:
    model: TrainableModel = request.getfixturevalue(name)
    page, _ = opened(Subject.random(model))
    page.click("#tab-measure")
    press(page, "Measure")
    page.wait_for_selector("#measure table")
    page.click("#tab-personalize")
    page.get_by_text(f"has one row per example: {FORMS[name]}").wait_for()
    rows, headings = taught(name)
    choose(page, "rows.csv", "\n".join(",".join(map(str, row)) for row in rows.tolist()).encode())
    page.wait_for_selector('#personalize :text("Kept 60 examples of rows.csv.")')
    figures = train(page, 2.0)
    assert [h for h in page.locator("#personalize thead th").all_inner_texts() if "held-out" in h] == headings
    table = [row for row in figures if row[0] == "before" or row[0].endswith(" s")]
    scored = [number(row[3]) for row in table]
    assert scored[-1] > scored[0] + 0.1, table
    held = held_out(model, rows, downloaded(page))
    assert scored[-1] == pytest.approx(held, abs=0.006)


def number(text: str) -> float:
    """Return a percentage of the page as a fraction."""
    return int(text.partition("%")[0]) / 100


def held_out(model: TrainableModel, rows: np.ndarray[Any, Any], weights: Mapping[str, Any]) -> float:
    """Return the accuracy in Python of a page's weights on the examples that it holds out."""
    tensors = [*model.inputs.values(), *model.targets.values()]
    widths = [int(np.prod(tensor.shape[1:], dtype=int)) for tensor in tensors]
    columns = np.split(rows, np.cumsum(widths)[:-1], axis=1)
    arrays = [
        part.reshape(len(rows), *tensor.shape[1:]).astype(tensor.dtype)
        for part, tensor in zip(columns, tensors, strict=True)
    ]
    x, y = (
        rows_of(dict(zip(names, own, strict=True)))
        for names, own in ((model.inputs, arrays[: len(model.inputs)]), (model.targets, arrays[len(model.inputs) :]))
    )
    labels = rows[:, sum(widths[: len(model.inputs)])]
    groups = labels if len(model.outputs) == 1 and len(model.output.shape) == 2 else np.zeros(len(rows))
    order = [i for label in np.unique(groups) for i in np.flatnonzero(groups == label)[1::3]]
    device = Device(model, (x, y), test=(x[np.array(order)], y[np.array(order)]))
    device.restore(Weights.from_tensors(model.layout, [weights[p.name] for p in model.parameters]))
    figures = device.evaluate()
    return figures.get("accuracy", figures.get("accuracy_kind", 0.0))


def test_model_of_unknown_loss_is_personalized_without_figures(
    opened: Callable[..., tuple[Any, Site]], regression: TrainableModel
) -> None:
    page, _ = opened(Subject.random(replace(regression, manifest=None, loss=None)))
    page.click("#tab-personalize")
    choose(page, "rows.csv", "\n".join(",".join(map(str, row)) for row in regression_rows().tolist()).encode())
    page.wait_for_selector('#personalize :text("Kept 30 examples of rows.csv.")')
    assert len(train(page, 1.0)[-1]) == 3  # seconds, steps and the training loss


def test_wrong_cell_of_several_inputs_is_named(
    opened: Callable[..., tuple[Any, Site]], recommender: TrainableModel
) -> None:
    page, _ = opened(Subject.random(recommender))
    page.click("#tab-personalize")
    for line, sentence in (
        (b"1,6,0\n", "Line 1, column 2 (item): id 6 is out of range, recommender accepts ids 0..5; "),
        (b"1,5,4\n", "Line 1, column 3 (y): label 4 is out of range, recommender has classes 0..3; "),
        (b"1,5\n", "Line 1 has 2 numbers; the model takes 2 inputs (user, item), then 1 target."),
    ):
        choose(page, "rows.csv", line)
        page.wait_for_selector(f'#personalize .notice.failed:has-text("{sentence}")')


def test_unusable_file_is_named(opened: Callable[..., tuple[Any, Site]], regression: TrainableModel) -> None:
    page, _ = opened(Subject.random(regression))
    page.click("#tab-personalize")
    for name, content, sentence in (
        ("short.csv", b"1,2,3\n", "Line 1 has 3 numbers; the model takes 6 inputs, then 2 targets."),
        ("infinite.csv", b"a,b\n1,2,3,4,1e39,6,7,8\n", "Line 2, column 5: expected float32, found 1e+39; rescale the"),
        ("empty.csv", b"", "empty.csv contains no rows; choose a .csv or .npy file with one row per example."),
        ("cut.npy", b"\x93NUMPY\x01\x00\x10\x00", "The .npy file is not a two-dimensional array of float32,"),
    ):
        choose(page, name, content)
        notice = page.wait_for_selector(f'#personalize .notice.failed:has-text("{sentence}")')
        assert notice.inner_text().startswith(sentence)
        assert page.locator('#personalize :text("No examples yet.")').is_visible(), name


def test_sensor_model_offers_recordings(
    opened: Callable[..., tuple[Any, Site]], configured: Callable[[str], TrainableModel]
) -> None:
    page, _ = opened(Subject.random(configured("har_cnn")))
    page.click("#tab-personalize")
    assert page.locator("#activity option").all_inner_texts() == list("012345")
    press(page, "Record")
    sentence = page.wait_for_selector("#personalize .notice.failed").inner_text()
    assert sentence == "The motion sensor gives no readings; use a phone that has one, or use a file."


def test_browser_without_simd_gets_one_sentence(
    browser: Any, site: Callable[..., Site], softmax: TrainableModel
) -> None:
    page = patient(browser.new_page())
    page.add_init_script("WebAssembly.validate = () => false")
    ready(page, site(digit_subject(softmax)).address)
    assert page.inner_text("#status").startswith("This browser has no WebAssembly SIMD")
    assert not page.locator("#sections").is_visible()
    page.close()


def test_litert_comes_from_the_cdn_without_assets(browser: Any, assets: Path, softmax: TrainableModel) -> None:
    def from_npm(route: Any) -> None:
        name = re.sub(r"@2\.5\.3/", "/", route.request.url.partition("/npm/")[2])
        headers = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}
        route.fulfill(path=assets / "node_modules" / name, headers=headers)

    page = patient(browser.new_page())
    page.route("https://cdn.jsdelivr.net/**", from_npm)
    subject = digit_subject(softmax)
    listening = listen("127.0.0.1", 0)
    app = phone_app(TOKEN, "127.0.0.1", routes=phone_routes(subject, record(subject), PYTHON, Path("unused")))
    with Server(app, listening):
        ready(page, address_of(listening, TOKEN))
        press(page, "Run the check")
        page.wait_for_selector('#check .notice.good:has-text("Equal")')
    page.close()


def test_wrong_token_gets_one_sentence(browser: Any, site: Callable[..., Site], softmax: TrainableModel) -> None:
    page = patient(browser.new_page())
    assert page.goto(site(digit_subject(softmax)).address.replace(TOKEN, "wrong")).status == 403
    assert page.inner_text("body").startswith("The token in this address is wrong; scan the QR code again")
    page.close()


def test_file_that_the_browser_cannot_run_gets_one_sentence(
    browser: Any, site: Callable[..., Site], softmax: TrainableModel
) -> None:
    page = patient(browser.new_page())
    page.route("**/model.tflite", lambda route: route.fulfill(body=softmax.content[:1000]))
    ready(page, site(digit_subject(softmax)).address)
    assert page.inner_text("h1") == "This device cannot run the model"
    assert page.inner_text("#status").startswith("This file cannot be compiled: ")
    page.close()


def test_refused_and_cut_uploads_are_explained(
    opened: Callable[..., tuple[Any, Site]], softmax: TrainableModel
) -> None:
    page, site = opened(digit_subject(softmax))
    page.click("#tab-measure")
    press(page, "Measure")
    page.wait_for_selector("#measure table")
    for answer, sentence in (
        (lambda route: route.abort(), "The server cannot be reached"),
        (lambda route: route.continue_(post_data="x" * 70_000), "The upload exceeds 65,536 bytes"),
        (lambda route: route.continue_(post_data="{}"), "the upload: not a device profile of version 1"),
    ):
        page.route("**/profile", answer)
        press(page, "Upload")
        page.wait_for_selector(f'#measure .notice.failed:has-text("{sentence}")')
        page.unroute("**/profile")
    press(page, "Upload")
    page.wait_for_selector("#measure .notice.good")
    assert len(list(site.profiles.iterdir())) == 1


def test_recorded_motion_is_resampled_to_windows(harness: Any) -> None:
    body = """
      const event = (x) => new DeviceMotionEvent("devicemotion", {
        acceleration: { x, y: 0, z: 0 }, accelerationIncludingGravity: { x, y: 0, z: 9.80665 },
        rotationRate: { alpha: 0, beta: 180, gamma: 0 },
      });
      const timer = setInterval(() => dispatchEvent(event(9.80665)), 5);
      const windows = await m.record([9, 16], 0.7, 0, () => {});
      clearInterval(timer);
      return windows;
    """
    windows = np.array(module(harness, "motion", body))
    assert windows.shape == (2, 9 * 16)
    channels = windows.reshape(2, 9, 16)
    expected = [1, 0, 0, np.pi, 0, 0, 1, 0, 1]
    np.testing.assert_allclose(channels, np.broadcast_to(np.array(expected)[None, :, None], channels.shape), atol=1e-6)


def test_readings_are_interpolated_in_time(harness: Any) -> None:
    body = "return m.resampled([0, 10, 40, 60].map((time) => ({ time, values: [time] })), 4)"
    assert module(harness, "motion", body) == [[0], [20], [40], [60]]


def picture(page: Any, points: Sequence[tuple[float, float]], side: int) -> np.ndarray[Any, Any]:
    body = """
      const drawing = new m.Drawing(() => {});
      drawing.stroke = [given.points[0]];
      for (const point of given.points) { drawing.stroke.push(point); drawing.paint(); }
      return drawing.picture(given.side, given.side);
    """
    values = module(page, "drawing", body, {"points": points, "side": side})
    return np.array(values).reshape(side, side)


def test_pictures_are_cropped_fitted_and_centered(harness: Any) -> None:
    line = picture(harness, [(250, 60), (250, 260)], 8)
    assert line.max() <= 1
    assert (line.sum(1) > 0).all()  # as high as the frame
    np.testing.assert_allclose(line, line[:, ::-1], atol=0.35)  # in the middle
    assert line[:, :2].sum() == 0
    large = picture(harness, [(250, 60), (250, 260)], 28)
    assert large[:4].sum() == large[-4:].sum() == 0
    assert large[4].sum() > 0


@pytest.mark.parametrize(
    ("loss", "target", "scale"),
    [
        (0.0, 1.0, 1.0),
        (0.25, 1000.0, 1e8 / 2**21),  # as much as the error of an output
        (4.0, 1000.0, 4e8 / 2**21),  # twice the residual of 2 as much
        (1e6, 1000.0, 1e6),
    ],
)
def test_small_loss_of_large_targets_differs_by_their_rounding(
    loss: float, target: float, scale: float, harness: Any
) -> None:
    found = loss + scale / 128
    body = "return m.difference({ loss: Float32Array.of(given[0]) }, { loss: Float32Array.of(given[1]) }, given[2])"
    difference = module(harness, "check", body, [found, loss, target])
    assert difference == pytest.approx(1 / 128, rel=1e-4)


def test_fitted_regression_of_large_targets_is_equal_without_fused_products(
    browser: Any, site: Callable[..., Site], configured: Callable[[str], TrainableModel], tmp_path: Path
) -> None:
    model, rng = configured("linear"), np.random.default_rng(0)
    kernel, bias = (1000 * rng.normal(size=p.shape).astype(np.float32) for p in model.parameters)
    x = rng.normal(size=(192, 28)).astype(np.float32)
    y = x @ kernel + bias + rng.normal(size=(192, 1)).astype(np.float32)
    device = Device(model, (x, y))
    values = zip(model.parameters, (kernel, bias), strict=True)
    (tmp_path / "fitted").write_bytes(save_tensors({parameter.name: value for parameter, value in values}))
    device.restore(tmp_path / "fitted")
    page = patient(browser.new_page())
    page.add_init_script(WITHOUT_RELAXED_SIMD)
    ready(page, site(Subject.of(personal_model(device), x, y, "large targets")).address)
    press(page, "Run the check")
    verdict = page.wait_for_selector("#check .notice.good, #check .notice.failed").inner_text()
    assert verdict.startswith("Equal: "), cells(page, "check")
    page.close()


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}, 0),
        ({"a": [1, 2.002]}, {"a": [1, 2]}, 0.001),
        ({"a": [1, 2], "b": [0.002]}, {"a": [1, 2], "b": [0]}, 0.001),
        ({"a": [0.5]}, {"a": [0]}, 0.5),
        ({"loss": [4.002]}, {"loss": [4]}, 0.0005),
        ({"loss": [0.002]}, {"loss": [0.001]}, 0.001),
        ({"a": [None]}, {"a": [1]}, None),
        ({"a": [None, 2]}, {"a": [None, 1]}, 1),
        ({"a": [1]}, {"a": [1, 2]}, None),
        ({}, {"a": [1]}, None),
    ],
)
def test_difference_is_relative_to_the_largest_value_of_a_call(
    found: dict[str, Any], expected: dict[str, Any], difference: float | None, harness: Any
) -> None:
    body = """
      const floats = (values) => Float32Array.from(values, (value) => value ?? NaN);
      const tensors = (lists) => Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, floats(list)]));
      const difference = m.difference(tensors(given[0]), tensors(given[1]));
      return JSON.stringify(difference === Infinity ? null : difference);
    """
    answer = json.loads(module(harness, "check", body, [found, expected]))
    assert answer == (None if difference is None else pytest.approx(difference, rel=1e-3))


def test_integers_have_a_scale_of_their_own(harness: Any) -> None:
    body = """
      const tensors = (step) => ({ a: Float32Array.of(1000), step: Int32Array.of(step) });
      return m.difference(tensors(6), tensors(5));
    """
    assert module(harness, "check", body) == 0.2


def test_quantiles_are_those_of_numpy(harness: Any) -> None:
    values = sorted(np.random.default_rng(0).random(7).tolist())
    found = module(harness, "measure", "return [0.25, 0.5, 0.75].map((q) => m.quantile(given, q))", values)
    np.testing.assert_allclose(found, np.quantile(values, (0.25, 0.5, 0.75)))


def test_page_has_no_address_of_another_server_but_the_cdn() -> None:
    page = Path(phone_app.__code__.co_filename).with_name("page")
    texts = {path.name: path.read_text() for path in page.iterdir() if path.suffix in (".js", ".html", ".css")}
    found = {(name, host) for name, text in texts.items() for host in re.findall(r"https?://([\w.-]+)", text)}
    assert {host for _, host in found} == {"cdn.jsdelivr.net"}
