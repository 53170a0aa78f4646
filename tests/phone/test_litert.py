"""`litert.js`: loads LiteRT.js, describes a file's signatures, and calls them."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import patient

from odt_sim import TrainableModel
from odt_sim.device.runtime import Runtime

LOAD = "const { load } = await import('./page/litert.js'); const litert = await load({ assets: './assets/' });"
COMPILE = "const model = await litert.compile(Uint8Array.from(atob(file), (c) => c.charCodeAt(0)));"


def run(page: Any, body: str, argument: Any = None) -> Any:
    """Run the body of an async function of `file` (and of LiteRT.js and the compiled `model`) in the page."""
    return page.evaluate(f"async (file) => {{ {LOAD} {body} }}", argument)


def content(model: TrainableModel) -> str:
    return base64.b64encode(model.content).decode()


def test_signatures_are_those_of_the_file(harness: Any, softmax: TrainableModel) -> None:
    found = run(harness, f"{COMPILE} return model.signatures", content(softmax))
    assert found.keys() == softmax.signatures.keys()
    for name, signature in softmax.signatures.items():
        for side, tensors in (("inputs", signature.inputs), ("outputs", signature.outputs)):
            expected = {(t.name, t.dtype, tuple(t.shape)) for t in tensors.values()}
            assert {(t["name"], t["dtype"], tuple(t["shape"])) for t in found[name][side]} == expected


def test_steps_equal_those_of_python(harness: Any, softmax: TrainableModel) -> None:
    assert_same_steps(harness, softmax)


def test_steps_without_relaxed_simd_equal_those_of_python(browser: Any, harness: Any, softmax: TrainableModel) -> None:
    """WebKit has no relaxed SIMD, so iPhones load this build of LiteRT.js."""
    page = patient(browser.new_page())
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    page.add_init_script("""
      const { instantiate } = WebAssembly;  // LiteRT.js tries a module of 36 bytes
      WebAssembly.instantiate = (...given) =>
        given[0].byteLength < 100 ? Promise.reject(new Error("no relaxed SIMD")) : instantiate(...given);
    """)
    page.goto(harness.url)
    assert_same_steps(page, softmax)
    page.close()
    assert "litert_wasm_compat_internal.wasm" in loaded


def assert_same_steps(page: Any, softmax: TrainableModel) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, 8, 8, 1)).astype(np.float32), rng.integers(0, 10, 16).astype(np.int32)
    python = Runtime(softmax)
    weight, rate = np.ones(16, np.float32), np.float32(0.1)
    losses = [float(python.call("train", x=x, y=y, sample_weight=weight, learning_rate=rate)["loss"]) for _ in range(3)]
    body = f"""
      const {{ x, y, bytes }} = JSON.parse(file);
      file = bytes;
      {COMPILE}
      const inputs = {{
        x: {{ data: Float32Array.from(x), shape: [16, 8, 8, 1] }}, y: Int32Array.from(y),
        sample_weight: new Float32Array(16).fill(1), learning_rate: Float32Array.of(0.1),
      }};
      const losses = [];
      for (let step = 0; step < 3; step++) losses.push((await model.call("train", inputs)).loss[0]);
      const weights = await model.call("parameters");
      return [losses, Array.from(weights.a0), Array.from(weights.a1)];
    """
    given = {"x": x.ravel().tolist(), "y": y.tolist(), "bytes": content(softmax)}
    found, kernel, bias = run(page, body, json.dumps(given))
    expected = python.call("parameters")
    np.testing.assert_allclose(found, losses, rtol=1e-6)
    np.testing.assert_allclose(kernel, expected["a0"].ravel(), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(bias, expected["a1"], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("'validate', {}", "No signature validate; the file has "),
        ("'infer', {}", "Signature infer, input x: missing; expected float32 [16, 8, 8, 1]."),
        (
            "'infer', { x: new Int32Array(1024) }",
            "Signature infer, input x: expected float32 [16, 8, 8, 1], found Int32Array [16, 8, 8, 1] of 1024 numbers.",
        ),
        (
            "'infer', { x: { data: new Float32Array(64), shape: [1, 8, 8, 1] } }",
            "Signature infer, input x: expected float32 [16, 8, 8, 1], found Float32Array [1, 8, 8, 1] of 64 numbers.",
        ),
    ],
)
def test_call_that_does_not_fit_names_signature_and_input(
    harness: Any, softmax: TrainableModel, call: str, error: str
) -> None:
    body = f"{COMPILE} try {{ await model.call({call}) }} catch (error) {{ return error.message }}"
    assert run(harness, body, content(softmax)).startswith(error)


@pytest.mark.parametrize("signature", ["infer", "train"])
def test_op_that_fails_is_an_error(harness: Any, dropout: TrainableModel, signature: str) -> None:
    body = f"""
      {COMPILE}
      const inputs = (word) => ({{
        x: new Int32Array(16).fill(word), y: new Int32Array(4), sample_weight: new Float32Array(4).fill(1),
        learning_rate: Float32Array.of(0.1),
      }});
      const call = (word) => model.call("{signature}", inputs(word)).then(() => "done", (error) => error.message);
      return [await call(9), await call(99), await call(9)];
    """
    before, failed, after = run(harness, body, content(dropout))
    op = r"gather index out of bounds; Node number \d+ \(GATHER\) failed to invoke"
    assert re.fullmatch(rf"Signature {signature} failed: {op}; Failed to invoke", failed)
    assert (before, after) == ("done", "done")


def test_bytes_that_are_no_model_are_refused(harness: Any) -> None:
    body = "try { await litert.compile(new Uint8Array(1000)) } catch (error) { return error.message }"
    assert run(harness, body).startswith("This file cannot be compiled: ")


def test_browser_without_simd_is_refused(browser: Any, harness: Any) -> None:
    page = patient(browser.new_page())
    page.add_init_script("WebAssembly.validate = () => false")
    page.goto(harness.url)
    body = "async () => { const { load } = await import('./page/litert.js'); await load({ assets: './assets/' }) }"
    with pytest.raises(Exception, match=r"This browser has no WebAssembly SIMD, which LiteRT\.js needs"):
        page.evaluate(body)
    page.close()


def test_missing_assets_are_named(browser: Any, harness: Any) -> None:
    page = patient(browser.new_page())
    page.goto(harness.url)
    body = "async () => { const { load } = await import('./page/litert.js'); await load({ assets: './nowhere/' }) }"
    with pytest.raises(Exception, match=r"LiteRT\.js 2\.5\.3 cannot be loaded from http://127\.0\.0\.1:\d+/nowhere/"):
        page.evaluate(body)
    page.close()


def test_tested_version_is_the_pinned_one(harness: Any, assets: Path) -> None:
    installed = json.loads((assets / "node_modules" / "@litertjs" / "core" / "package.json").read_text())["version"]
    assert harness.evaluate("async () => (await import('./page/litert.js')).VERSION") == installed
