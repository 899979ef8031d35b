"""One browser and four pages for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from tests.browser.drive import browser, complaints, load, missing, resize
from tests.browser.examples import HOSTILE, four_methods, simulate, small_sweep, tuned_sweep

from areabench.cli.main import main


@pytest.fixture(scope="session")
def driver() -> Iterator[Chrome]:
    """A browser, or a reason why there is none."""
    if reason := missing():
        pytest.skip(reason)
    with browser() as started:
        yield started


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of one run, of several, of a sweep, and of one that is tuned."""
    folder = tmp_path_factory.mktemp("pages")
    sources = {
        "one": simulate(folder, "one"),
        "several": four_methods(folder / "several"),
        "sweep": small_sweep(folder / "sweep"),
        "tuned": tuned_sweep(folder / "tuned"),
    }
    pages = {name: folder / f"{name}.html" for name in sources}
    for name, source in sources.items():
        more = ["--title", HOSTILE, "--target", "60"] if name == "several" else []
        assert main(["report", str(source), "-o", str(pages[name]), *more]) == 0
    return pages


@pytest.fixture
def desktop(driver: Chrome) -> Iterator[Chrome]:
    """The browser at the width of a desktop; the console must stay empty in every test."""
    resize(driver, 1280, 900)
    complaints(driver)
    yield driver
    assert complaints(driver) == []


@pytest.fixture
def several(desktop: Chrome, pages: dict[str, Path]) -> Chrome:
    """The page of several runs."""
    load(desktop, pages["several"])
    return desktop


@pytest.fixture
def sweep(desktop: Chrome, pages: dict[str, Path]) -> Chrome:
    """The page of a sweep."""
    load(desktop, pages["sweep"])
    return desktop
