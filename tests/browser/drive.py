"""A headless Chromium under Selenium: started once, without any network, closed properly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def missing() -> str:
    """What a machine lacks for these tests; empty where it lacks nothing."""
    if not any(map(shutil.which, BROWSERS)):
        return "no Chromium; `make browser` installs Debian's as root"
    return "" if shutil.which("chromedriver") else "no chromedriver; `make browser` installs Debian's as root"


@contextmanager
def browser() -> Iterator[Chrome]:
    """A browser with a profile of its own; Selenium gets all paths, so that it downloads nothing."""
    with TemporaryDirectory() as profile:
        options = ChromeOptions()
        options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        flags = (*FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else []))
        for flag in flags:
            options.add_argument(flag)
        driver = Chrome(options=options, service=Service(executable_path=shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def resize(driver: Chrome, width: int, height: int, *, dark: bool = False) -> None:
    """A screen of this size in pixels; it may be narrower than Chromium's windows can be."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def load(driver: Chrome, page: Path) -> None:
    """A page from disk."""
    driver.get(page.resolve().as_uri())


def complaints(driver: Chrome) -> list[str]:
    """What the console holds since it was last asked: errors, violations of the page's policy, everything."""
    entries: list[dict[str, Any]] = driver.get_log("browser")  # type: ignore[no-untyped-call]  # Selenium's
    return [str(entry["message"]) for entry in entries]
