"""The page of `odt-sim inspect --html` in Chromium: choose, search, zoom, move."""

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
from chromium import patient
from dialects import generated

from odt_sim import TrainableModel
from odt_sim.model.editing.inference_only import inference_only
from odt_sim.model_page.page import LARGEST, write_model_page


@pytest.fixture
def page(browser: Any) -> Any:
    context = patient(browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark"))
    page = context.new_page()
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("request", lambda request: page.errors.append(request.url) if not request.url.startswith("file:") else None)
    yield page
    context.close()


def test_graph_is_searched_filtered_and_moved(page: Any, tmp_path: Path, digits_cnn: TrainableModel) -> None:
    (tmp_path / "m.tflite").write_bytes(digits_cnn.content)
    write_model_page(tmp_path / "m.tflite", tmp_path / "m.html")
    page.goto(f"file://{tmp_path}/m.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    count = int(page.text_content("#count").split()[0])
    assert page.locator(".node").count() == count > 100
    page.fill("#search", "max_pool")
    found = page.locator(".node:not(.dim)")
    assert 0 < found.count() < 20
    assert all("MAX_POOL" in text for text in found.all_text_contents())
    page.fill("#search", "")
    options = page.locator("#layer option").all_text_contents()
    assert any("classifier" in text for text in options)
    page.select_option("#layer", index=1)
    assert 0 < page.locator(".node:not(.dim)").count() < count
    page.select_option("#layer", "")
    before = page.get_attribute("#scene", "transform")
    page.click("#in")
    assert page.get_attribute("#scene", "transform") != before
    page.focus("#drawing")
    page.keyboard.press("ArrowDown")
    page.click("#fit")
    page.locator(".node").first.dispatch_event("click")
    assert "input" in page.text_content("#details")
    assert page.errors == []


def test_flex_ops_have_their_own_colour(page: Any, tmp_path: Path) -> None:
    write_model_page(generated("checkpoint_scalar").path, tmp_path / "m.html")
    page.goto(f"file://{tmp_path}/m.html")
    assert page.locator("#drawing rect.flex").count() == 1
    page.select_option("#signature", "save")
    assert page.locator("#drawing rect.flex").count() == 1
    assert page.locator("#drawing rect.xnnpack").count() == 0
    assert page.errors == []


def test_constants_are_listed_with_their_number_of_values(
    page: Any, tmp_path: Path, digits_cnn: TrainableModel
) -> None:
    (tmp_path / "m.tflite").write_bytes(inference_only(digits_cnn.content, "m"))
    write_model_page(tmp_path / "m.tflite", tmp_path / "m.html")
    page.goto(f"file://{tmp_path}/m.html")
    rows = page.locator("tbody tr", has=page.locator("td.number")).all()
    listed = [row.locator("td").all_text_contents()[:2] for row in rows]
    listed = [(text, count) for text, count in listed if text.startswith("float32[")]
    shapes = [parameter.shape for parameter in digits_cnn.parameters if 4 * prod(parameter.shape) >= LARGEST]
    assert {f"{prod(shape):,}" for shape in shapes} <= {count for _, count in listed}
    assert all(f"{prod(json.loads(text[len('float32') :])):,}" == count for text, count in listed)
    assert page.errors == []
