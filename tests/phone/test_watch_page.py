"""The page of `odt-sim watch` in Chromium: it follows runs, and survives restarts of the run, the server and itself."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from chromium import patient
from command_process import COMMAND
from written_runs import round_record, write_hydra, write_run

from odt_sim import TrainableModel
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.watch.server import watch_server

LONG = [
    "model=digits_mlp",
    "backend=serial",
    "fleet.devices=4",
    "fleet.unseen=1",
    "run.rounds=1000",
    "run.evaluate_every=50",
]


@contextmanager
def served(folder: Path, port: int = 0) -> Iterator[str]:
    server, address = watch_server(folder, "127.0.0.1", port)
    with server:
        yield address


@contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    context = patient(browser.new_context(**{"viewport": {"width": 1000, "height": 800}, **options}))
    page = context.new_page()
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(address)
    try:
        yield page
    finally:
        context.close()
    assert page.errors == []


def shows(page: Any, selector: str, text: str) -> None:
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)", arg=[selector, text]
    )


def in_row(page: Any, number: int, text: str) -> None:
    shows(page, f"tbody tr:nth-child({number})", text)


def test_table_and_curves_grow_with_the_runs(browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    with served(tmp_path) as address, opened(browser, address) as page:
        shows(page, "#status", "live")
        in_row(page, 1, "complete")
        assert page.locator("#curves figure").count() == 1
        write_hydra(tmp_path / "1", ["strategy=fedper", "seed=1"])
        in_row(page, 2, "starting")
        for number in (1, 2):
            RunFolder(tmp_path / "1").append_rounds(round_record(number, strategy="fedper", accuracy=0.25 * number))
            in_row(page, 2, f"{number} / 10")
        cells = page.locator("tbody tr").nth(1).locator("th, td").all_text_contents()
        assert cells[:6] == ["fedperseed=1", "running", "2 / 10", "50.0", "0.500", "0.250"]
        assert page.locator("#curves figure").count() == 2
        assert page.locator("polyline").count() == 2
        assert page.title().startswith("1 running")
        RunFolder(tmp_path / "1").write_failure("no space left", [])
        in_row(page, 3, "no space left")  # below the job's row
        assert page.locator("thead th").all_text_contents()[3] == "accuracy (%)"
        shutil.rmtree(tmp_path / "0")
        in_row(page, 1, "fedper")
        assert page.locator("tbody tr").count() == 2


def test_empty_folder_says_so(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path) as address, opened(browser, address) as page:
        page.wait_for_selector("#empty:visible")
        write_run(tmp_path / "0")
        page.wait_for_selector("#empty", state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_page_fits(scheme: str, browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "0", overrides=["data=digits", "train.learning_rate=0.0123456789"])
    write_run(tmp_path / "1", strategy="a_strategy_with_a_very_long_name_of_its_own", overrides=["data=mnist"])
    narrow = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    with served(tmp_path) as address, opened(browser, address, **narrow) as page:
        in_row(page, 2, "complete")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 29)"}[scheme]
        write_hydra(tmp_path / "2", ["strategy=fedper"])
        RunFolder(tmp_path / "2").write_failure(
            "no space left, as a sentence that fills more than one line of a phone", []
        )
        in_row(page, 4, "no space left")
        error = page.locator(".failure small").bounding_box()
        assert 250 < error["width"] <= 360 - error["x"]
        assert error["height"] < 60


def test_names_are_text_and_not_markup(browser: Any, tmp_path: Path) -> None:
    write_hydra(tmp_path / "0", ["strategy=fedavg"])
    bad = "<img src=x onerror=document.title='run'>"
    RunFolder(tmp_path / "0").append_rounds(round_record(1, strategy=bad, accuracy=0.5))
    with served(tmp_path) as address, opened(browser, address) as page:
        in_row(page, 1, bad)
        assert page.locator("img").count() == 0


def test_page_says_that_it_reads_the_runs(browser: Any, tmp_path: Path) -> None:
    file = write_run(tmp_path / "0") / ".hydra" / "overrides.yaml"
    content = file.read_bytes()
    file.unlink()
    os.mkfifo(file)  # its reader waits until it is written
    with served(tmp_path) as address, opened(browser, address) as page:
        shows(page, "#status", "reading runs")
        with file.open("wb") as slow:
            file.unlink()
            file.write_bytes(content)
            slow.write(content)
        shows(page, "#status", "live")


def test_page_survives_a_restart_of_the_run_and_of_the_server(
    browser: Any, tmp_path: Path, digits_mlp: TrainableModel
) -> None:
    with served(tmp_path) as address, opened(browser, address) as page:
        run = start(tmp_path, *LONG, "hydra.run.dir=here")
        try:
            shows(page, "tbody tr", "running")
            page.wait_for_function("Number(document.querySelector('progress').value) >= 12")
        finally:
            os.kill(run.pid, signal.SIGKILL)
            run.wait()
        stopped = page.evaluate("Number(document.querySelector('progress').value)")
        with served(tmp_path, port=0) as other:  # a second page sees the same
            page.goto(other)
            shows(page, "#status", "live")
            port = urlsplit(other).port
        shows(page, "#status", "reconnecting")
        assert page.locator("tbody tr").count() == 1, "the last figures stay"
        resumed = start(tmp_path, "run.resume=here")
        try:
            with served(tmp_path, port=port or 0):
                shows(page, "#status", "live")
                page.wait_for_function("(before) => document.querySelector('progress').value > before", arg=stopped)
                page.reload()
                shows(page, "tbody tr", "complete")
                shows(page, "tbody tr", "1,000 / 1,000")
                assert page.locator("polyline").get_attribute("points").count(",") == 20
            assert resumed.wait(timeout=120) == 0
        finally:
            resumed.kill()
            resumed.wait()


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "run", *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
