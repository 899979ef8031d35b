"""The report in a real browser: it says what the runs say, does what its controls promise, and loads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select
from tests.browser.drive import complaints, load, resize
from tests.browser.examples import HOSTILE, negative_losses, simulate

from areabench.cli.main import main

pytestmark = pytest.mark.system


def one(driver: Chrome, selector: str) -> WebElement:
    return driver.find_element(By.CSS_SELECTOR, selector)


def texts(driver: Chrome, selector: str) -> list[str]:
    return [found.text for found in driver.find_elements(By.CSS_SELECTOR, selector)]


def lines(driver: Chrome) -> list[str]:
    """The series that the first accuracy chart shows."""
    chart = one(driver, "#curves .plot")
    found = chart.find_elements(By.CSS_SELECTOR, ".series")
    return [str(series.get_attribute("data-label")) for series in found]


def column(driver: Chrome, number: int) -> list[str]:
    return texts(driver, f"#summary-table tbody td:nth-child({number})")


def script(driver: Chrome, text: str) -> Any:
    return driver.execute_script(f"return {text}")


# ---------------------------------------------------------------------------------------------------- every page


@pytest.mark.parametrize("name", ["one", "several", "sweep", "tuned"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_opens_from_disk_fits_the_screen_and_logs_nothing(
    driver: Chrome, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    resize(driver, width, 900, dark=dark)
    complaints(driver)
    load(driver, pages[name])
    assert script(driver, "document.documentElement.scrollWidth") == width
    shown = {str(panel.get_attribute("id")) for panel in driver.find_elements(By.CSS_SELECTOR, "main section")}
    assert shown >= {"summary", "curves", "target", "sensitivity", "staleness", "run", "labels"}
    assert all(texts(driver, "main h2"))
    assert script(driver, "performance.getEntriesByType('resource').length") == 0  # everything is in the page
    if width == 1280:  # no column of the summary is clipped
        summary = "document.querySelector('#summary .scroll')"
        assert script(driver, f"{summary}.scrollWidth <= {summary}.clientWidth")
    assert complaints(driver) == []


def test_long_labels_are_not_cut(desktop: Chrome, tmp_path: Path) -> None:
    for eta in (0.25, 0.5):
        simulate(tmp_path, f"eta{eta}", "method.name=fedbuff", f"method.server_step_size={eta}")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 0
    load(desktop, tmp_path / "page.html")
    shown = [" ".join(text.split()) for text in texts(desktop, "#curves .plot:first-child :is(.end-label, .key)")]
    assert shown == ["FedBuff (server_step_size = 0.25)", "FedBuff (server_step_size = 0.5)"]
    assert "…" not in one(desktop, "#curves").text


def test_text_of_a_run_file_stays_text(several: Chrome) -> None:
    assert one(several, "h1").text == HOSTILE
    choice = Select(one(several, "#run-choice"))
    failed = next(option.text for option in choice.options if "failed" in option.text)
    choice.select_by_visible_text(failed)
    assert HOSTILE in one(several, "#run .facts").text
    assert HOSTILE in texts(several, "#run pre.command")
    assert script(several, "window.attacked") is None


def test_the_policy_of_the_page_runs_no_other_script(driver: Chrome, pages: dict[str, Path]) -> None:
    load(driver, pages["one"])
    complaints(driver)
    script(driver, "document.body.append(fill(document.createElement('script'), {}, ['window.attacked = 1']))")
    assert script(driver, "window.attacked") is None
    assert any("Content Security Policy" in entry for entry in complaints(driver))


# ---------------------------------------------------------------------------------------------------- controls


def test_a_method_is_switched_off_and_on_by_mouse_and_keyboard(several: Chrome) -> None:
    before, rows = lines(several), len(column(several, 1))
    assert before == ["AREA α=3", "FedBuff", "AS-FedAvg", "S-FedAvg"]
    one(several, '[data-method="AREA"]').click()
    assert one(several, '[data-method="AREA"]').get_attribute("aria-pressed") == "false"
    assert lines(several) == [label for label in before if not label.startswith("AREA")]
    assert len(column(several, 1)) < rows
    one(several, '[data-method="AREA"]').send_keys(Keys.SPACE)
    assert lines(several) == before
    assert len(column(several, 1)) == rows


def test_the_axis_is_switched(several: Chrome) -> None:
    def across() -> str:
        return texts(several, "#curves .plot:first-child .title")[0]

    def path() -> str:
        return str(one(several, "#curves .plot:first-child .series path").get_attribute("d"))

    over_time = path()
    assert across() == "virtual time (s)"
    one(several, 'input[value="updates"] + span').click()
    over_updates = path()
    assert across() == "updates received"
    one(several, 'input[value="aggregations"] + span').click()
    assert across() == "server steps (aggregations)"
    assert len({over_time, over_updates, path()}) == 3


def test_a_chart_is_zoomed_by_dragging_and_shows_values(several: Chrome) -> None:
    cover = one(several, "#curves .plot:first-child .cover")
    ActionChains(several).move_to_element(cover).perform()
    assert "virtual time (s)" in one(several, "#tooltip").text
    assert "AREA, α = 3" in one(several, "#tooltip").text
    ticks = texts(several, "#curves .plot:first-child .ticks")
    ActionChains(several).move_to_element(cover).click_and_hold().move_by_offset(60, 0).release().perform()
    assert texts(several, "#curves .plot:first-child .ticks") != ticks
    one(several, "#whole-range").click()
    assert texts(several, "#curves .plot:first-child .ticks") == ticks


def test_the_table_is_sorted_and_what_has_no_value_comes_last(several: Chrome) -> None:
    number = texts(several, "#summary-table th").index("Accuracy %") + 1
    for direction, factor in (("ascending", 1.0), ("descending", -1.0)):
        one(several, '[data-column="Accuracy %"]').click()
        assert one(several, f"#summary-table th:nth-child({number})").get_attribute("aria-sort") == direction
        cells = column(several, number)
        values = [factor * float(cell) for cell in cells if cell != "–"]
        assert values == sorted(values)
        assert len(values) > 1
        assert cells[len(values) :] == ["–"] * (len(cells) - len(values))


def test_the_timeline_is_zoomed_and_moved(several: Chrome) -> None:
    def span() -> tuple[float, float]:
        begin, _, _, end, *_ = one(several, "#timeline-where").text.split()
        return float(begin), float(end)

    one(several, '[aria-label="Show the whole window"]').click()
    whole = span()
    one(several, '[aria-label="Zoom in"]').click()
    zoomed = span()
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=1e-3)
    canvas = one(several, "canvas.timeline")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert span()[0] > zoomed[0]
    canvas.send_keys("-")
    assert span() == whole
    ActionChains(several).key_down(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT).key_up(Keys.SHIFT).perform()
    assert "computed from" in one(several, "#tooltip").text


def test_the_timeline_names_the_update_under_the_pointer(several: Chrome) -> None:
    canvas = one(several, "canvas.timeline")
    script(several, "document.querySelector('canvas.timeline').scrollIntoView({block: 'center'})")
    ActionChains(several).move_to_element_with_offset(canvas, -canvas.size["width"] // 2 + 90, 0).perform()
    assert "computed from\nversion 0" in one(several, "#tooltip").text


def test_of_a_window_within_a_run_the_first_step_has_no_count(
    desktop: Chrome, pages: dict[str, Path], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(pages["one"].with_suffix(".h5")), "-o", str(page), "--timeline", "2:4"]) == 0
    load(desktop, page)
    line = "data.details[0].timeline"
    script(desktop, f"void (window.view = new TimelineView(document.createElement('div'), {line}))")
    first = script(desktop, f"{line}.step_s.findIndex((time) => time >= 0)")
    assert [script(desktop, f"view.hasAllOf({step})") for step in (first, first + 1)] == [False, True]
    assert script(desktop, f"view.updatesIn({line}.version[{first} + 1])") == 2  # the server steps at every second
    assert one(desktop, "#timeline-where").text.startswith("2 s to ")


# ---------------------------------------------------------------------------------------------------- what is said


def test_ends_of_runs_are_distinguished(several: Chrome) -> None:
    marks = several.find_elements(By.CSS_SELECTOR, "#target .outcome")
    kinds = {mark.get_attribute("data-kind") for mark in marks}
    assert kinds == {"reached", "not reached", "diverged", "unfinished"}
    Select(one(several, "#setting-choice")).select_by_index(1)
    assert texts(several, "#target .strip-value")[0].startswith("ended at")


def test_defaults_that_act_and_runs_without_a_result_are_named(several: Chrome) -> None:
    told = one(several, "#defaults").text
    assert "problem.weighting: client i descends (s_i/S)·f_i;" in told
    assert "FedBuff: method.step_size: it sets the server's too: eta = alpha" in told
    assert "damaged.h5" in one(several, "#absent-table").text
    assert "unreadable" in one(several, "#absent-table").text


def test_a_sweep_names_its_missing_run_and_counts_its_trials(sweep: Chrome) -> None:
    missing = texts(sweep, "#absent-table tbody tr")
    assert len(missing) == 1
    assert missing[0].startswith("missing AREA, α = 1, uniform (λ = 8), seed 2")
    assert "1 of 2" in column(sweep, texts(sweep, "#summary-table th").index("Trials") + 1)


def test_a_tuned_sweep_says_what_was_tuned_and_marks_what_is_tied(desktop: Chrome, pages: dict[str, Path]) -> None:
    load(desktop, pages["tuned"])
    first, *others = texts(desktop, "#summary .tuning")
    assert "shows of each method the setting with the highest mean accuracy, of at most 4 tried" in first
    assert others
    assert all("is at the edge of the grid" in note for note in others)
    assert "the tuning runs are not shown" in one(desktop, "#sensitivity").text
    assert len(desktop.find_elements(By.CSS_SELECTOR, "#reached .series")) == 4
    assert len(desktop.find_elements(By.CSS_SELECTOR, "#profile .series")) == 2
    assert all(" to " in text or text == "best mean" for text in texts(desktop, "#differences tbody td:nth-child(3)"))
    marked = desktop.find_elements(By.CSS_SELECTOR, "#summary-table :is(.tied, .best)")
    assert marked
    heights = {cell.rect["height"] for cell in desktop.find_elements(By.CSS_SELECTOR, "#summary-table .method")}
    assert len(heights) == 1  # no name is broken


def test_step_sizes_of_a_sweep_are_chosen(sweep: Chrome) -> None:
    assert lines(sweep) == [
        f"{method} α={step_size}" for method in ("AREA", "FedBuff") for step_size in ("0.001", "1", "100,000")
    ]
    Select(one(sweep, '[data-steps="AREA"]')).select_by_value("best")
    assert lines(sweep)[0] == "AREA"
    assert len(lines(sweep)) == 4
    assert len(sweep.find_elements(By.CSS_SELECTOR, "#sensitivity .diverged")) > 0


def test_a_loss_below_zero_is_drawn_on_a_linear_axis(desktop: Chrome, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(negative_losses(tmp_path / "runs")), "-o", str(page)]) == 0
    load(desktop, page)
    assert "NaN" not in str(one(desktop, "main").get_attribute("innerHTML"))
    assert texts(desktop, "#sensitivity .plot:last-child .ticks text")[0].startswith(("-", "0"))
    assert not script(desktop, "positive({ mean: [1, 2], low: [-1, 1], limits: [-1, 2] })")
    assert script(desktop, "positive({ mean: [1, null], low: [] })")


def test_without_an_expectation_no_client_is_judged(several: Chrome) -> None:
    assert "Shaded: what chance allows." in one(several, "#run").text
    script(several, "data.details.forEach((detail) => { detail.participation.short = null; }), render()")
    assert "The expected number of updates is not known." in one(several, "#run").text
    assert several.find_elements(By.CSS_SELECTOR, "#run .chance, #run .expected") == []


def test_small_values_keep_digits(several: Chrome) -> None:
    shown = script(several, "[fixed(1e-5, 3), fixed(0.0123, 3), fixed(0.04, 1), fixed(0, 3), fixed(12.3456, 2)]")
    assert shown == ["1e-5", "0.012", "0.04", "0.000", "12.35"]
    assert script(several, "spreadCell({ mean: 2e-5, low: 1e-5, high: 3e-5 }, 3).textContent") == "2e-5 1e-5 – 3e-5"


def test_variants_of_a_method_look_different(several: Chrome) -> None:
    methods = ["area", "fedbuff", "as-fedavg", "s-fedavg", "mine:make"]
    looks = [
        (script(several, f"markerOf({series})"), script(several, f"dashOf({series})"))
        for series in (f"{{ method: '{method}', variant: {variant} }}" for method in methods for variant in range(3))
    ]
    assert len({marker for marker, _ in looks}) == len({dash for _, dash in looks}) == 15
    paths = [script(several, f"marker('{kind}', 0, 0, 4, {{}}).getAttribute('d')") for kind, _ in looks]
    assert paths.count(None) == 1  # the circle is no path
    assert len(set(paths)) == 15


# ---------------------------------------------------------------------------------------------------- dark, print


def test_dark_mode_follows_the_system_and_the_button(desktop: Chrome, pages: dict[str, Path]) -> None:
    def ground() -> str:
        return str(script(desktop, "getComputedStyle(document.body).backgroundColor"))

    load(desktop, pages["one"])
    light = ground()
    one(desktop, "#theme").click()
    dark = ground()
    assert light != dark
    resize(desktop, 1280, 900, dark=True)
    load(desktop, pages["one"])
    assert ground() == dark
    one(desktop, "#theme").click()
    assert ground() == light


def test_print_is_light_and_complete(desktop: Chrome, pages: dict[str, Path]) -> None:
    resize(desktop, 1280, 900, dark=True)
    load(desktop, pages["sweep"])
    script(desktop, "void dispatchEvent(new Event('beforeprint'))")
    assert script(desktop, "inks().paper") == "#ffffff"
    assert script(desktop, "[...document.querySelectorAll('details')].every((node) => node.open)")
    script(desktop, "void dispatchEvent(new Event('afterprint'))")
    assert script(desktop, "inks().paper") != "#ffffff"
