"""The picture in docs/report.md: the summary, the curves and the timeline of a report. PAGE.html PICTURE.png."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser.drive import browser, load, resize

_WIDTH = 1180
_PANELS = "#differences, #target, #reached, #profile, #sensitivity, #staleness, #labels"
_LEFT_OUT = f"{_PANELS}, #run .part:nth-of-type(n+3), footer, nav"


def main(page: Path, picture: Path) -> None:
    """Open the page, leave out what would make the picture too long, and take it."""
    with browser() as driver:
        resize(driver, _WIDTH, 900)
        load(driver, page)
        hide = f"for (const node of document.querySelectorAll({_LEFT_OUT!r})) node.hidden = true"
        driver.execute_script(hide)
        height = driver.execute_script("return document.documentElement.scrollHeight")
        resize(driver, _WIDTH, int(height))
        driver.save_screenshot(str(picture))
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
