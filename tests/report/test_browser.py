"""The page in Chromium: what is drawn, what is asked of the network, who can reach the controls."""

from collections.abc import Iterator
from typing import Any

import pytest

import runs as fixture
from browser import chromium, contrast, requested
from golden import check
from isthmus.report import page
from isthmus.report.figures import curves
from isthmus.report.figures.gain import compute_by_seed
from isthmus.report.figures.theme import ALONE, SERIES
from isthmus.report.groups import group_by_seed
from isthmus.run.record import RecordedRun, read

NARROW, WIDE = 400, 1400


class Page:
    """A report in a browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def ask(self, script: str, *given: object) -> Any:
        return self.driver.execute_script(f"return {script}", *given)

    def resize(self, width: int, theme: str = "light") -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        # The page hears of it with the next frame, and has drawn itself anew with the one after.
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def choose(self, name: str, value: str) -> None:
        """Chooses a value of a switch or of a list."""
        self.driver.execute_script(
            "const all = [...document.getElementsByName(arguments[0])];"
            "const one = all.find((each) => each.type !== 'radio' || each.value === arguments[1]);"
            "one.focus();"
            "if (one.type === 'radio') one.click();"
            "else { one.value = arguments[1];"
            "  one.dispatchEvent(new Event('change', { bubbles: true })); }",
            name,
            value,
        )

    def traces(self, figure: str) -> list[dict[str, Any]]:
        """Returns what plotly shows."""
        shown = "document.getElementById(arguments[0]).data.map((trace) => ({ name: trace.name,"
        shown += "x: trace.x, y: trace.y, meta: trace.meta, color: (trace.line || {}).color }))"
        return list(self.ask(shown, figure))

    def lines(self, figure: str) -> dict[str, dict[str, Any]]:
        return {t["name"]: t for t in self.traces(figure) if "seed" not in t["name"]}


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedRun]:
    """Three methods with two seeds each; a seed has a division of its own."""
    directory = tmp_path_factory.mktemp("seeded")
    made = []
    for seed in (1, 2):
        for method in ("local", "fedavg", "superfed-mm"):
            place = directory / f"{method}-{seed}"
            last = 50 if seed == 1 else 40  # the second seed is not done yet
            evaluations = tuple(range(10, last + 1, 10))
            about: dict[str, Any] = {"federation": f"{seed}{seed}", "evaluations": evaluations}
            made.append(read(fixture.write(place, method, seed=seed, **about)))
    return made


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="session")
def opened(
    driver: Any, seeded: list[RecordedRun], tmp_path_factory: pytest.TempPathFactory
) -> Page:
    place = page.write(seeded, tmp_path_factory.mktemp("page"))
    browser = Page(driver)
    browser.resize(WIDE)
    driver.get(place.as_uri())
    return browser


@pytest.fixture
def wide(opened: Page) -> Page:
    """The page as it was opened, but for what is chosen."""
    opened.resize(WIDE)
    for name, value in (("views", "top1"), ("axes", "rounds"), ("models", "personal")):
        opened.choose(f"curves-{name}", value)
    opened.choose("gain-seed", "1")
    return opened


def test_the_page_draws_all_and_complains_of_nothing(opened: Page) -> None:
    said = opened.driver.get_log("browser")
    assert [entry for entry in said if entry["level"] in ("SEVERE", "WARNING")] == []
    places = "[...document.querySelectorAll('.plot')].filter((one) => !one.closest('[hidden]'))"
    assert opened.ask(f"{places}.length") > 8
    assert opened.ask(f"{places}.every((one) => one.querySelector('.main-svg'))")


def test_the_page_asks_the_network_for_nothing(opened: Page) -> None:
    assert requested(opened.driver) == set()
    assert opened.ask("performance.getEntriesByType('resource').map((one) => one.name)") == []


@pytest.mark.parametrize("metric", ["top1", "loss", "ece", "head_variance"])
@pytest.mark.parametrize("axis", ["rounds", "seconds", "bytes"])
def test_the_switches_draw_the_recorded_values(
    wide: Page, seeded: list[RecordedRun], metric: str, axis: str
) -> None:
    """Means over both seeds at the rounds that both evaluated; five digits are kept."""
    wide.choose("curves-views", metric)
    wide.choose("curves-axes", axis)
    groups = group_by_seed(seeded)
    found = [curves.collect_series(group, metric) for group in groups]
    where = next(each for each in curves.choose_axes(found) if each.name == axis)
    factor = 100 if metric in ("top1", "ece") else 1
    drawn = wide.lines("figure-rounds")
    for group, line in zip(groups, curves.draw_lines(found, where), strict=True):
        if line is None:
            assert group.label not in drawn
            continue
        assert drawn[group.label]["x"] == pytest.approx(line.x.tolist(), rel=5e-5)
        assert drawn[group.label]["y"] == pytest.approx((factor * line.mean).tolist(), rel=5e-5)
    titles = wide.ask(
        "[...document.querySelectorAll('#figure-rounds .xtitle')].map(t => t.textContent)"
    )
    assert titles == [where.title]


def test_the_shared_models_are_drawn_when_asked_for(wide: Page, seeded: list[RecordedRun]) -> None:
    wide.choose("curves-models", "shared")
    found = curves.collect_series(group_by_seed(seeded)[1], "top1", "shared")
    assert found is not None
    drawn = wide.lines("figure-rounds")
    assert set(drawn) == {"fedavg", "superfed-mm"}
    assert drawn["fedavg"]["y"] == pytest.approx((100 * found.values.mean(0)).tolist(), rel=5e-5)


def test_a_method_is_left_out_and_comes_back(wide: Page) -> None:
    button = "document.querySelector('#rounds .legend button[data-run=\"1\"]')"
    wide.driver.execute_script(f"{button}.click()")
    assert set(wide.lines("figure-rounds")) == {"local", "superfed-mm"}
    wide.driver.execute_script(f"{button}.click()")
    assert "fedavg" in wide.lines("figure-rounds")


def test_another_seed_shows_its_clients(wide: Page, seeded: list[RecordedRun]) -> None:
    fedavg = group_by_seed(seeded)[1]
    for seed, gains in compute_by_seed(fedavg, seeded).items():
        wide.choose("gain-seed", str(seed))
        (bars,) = wide.traces("figure-gain-1")
        assert bars["y"] == pytest.approx(gains.points.tolist(), rel=5e-5)
        seen = "[...document.querySelectorAll('#gain .panels [data-seed]')]"
        seen += ".filter((one) => one.offsetParent).map((one) => one.textContent)"
        check(wide.ask(seen)[0])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(opened: Page, theme: str) -> None:
    opened.resize(NARROW, theme)
    assert opened.ask("innerWidth") == NARROW
    assert opened.ask(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    beyond = (
        "[...document.querySelectorAll('main *, header *, footer *')].filter((one) =>"
        "!one.closest('.scroll, .unseen, svg') && one.getBoundingClientRect().width"
        " && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML)"
    )
    assert opened.ask(beyond) == []


@pytest.mark.parametrize(("theme", "tone"), [("light", 0), ("dark", 1)])
def test_both_themes_can_be_read(opened: Page, theme: str, tone: int) -> None:
    """Text against the card behind it: a contrast of at least 4.5, as WCAG 2 asks."""
    opened.resize(WIDE, theme)
    drawn = opened.lines("figure-rounds")
    assert drawn["local"]["color"] == ALONE[tone]
    assert drawn["fedavg"]["color"] == SERIES[0][tone]
    behind = opened.ask("getComputedStyle(document.querySelector('.card')).backgroundColor")
    for what in ("#rounds .xtitle", "#rounds .xtick text"):
        ink = opened.ask(f"getComputedStyle(document.querySelector('{what}')).fill")
        assert contrast(ink, behind) >= 4.5
    for what in ("figcaption", "td", "thead th", "summary", ".legend button"):
        ink = opened.ask(f"getComputedStyle(document.querySelector('main {what}')).color")
        assert contrast(ink, behind) >= 4.5, what


def test_the_keyboard_reaches_every_control(wide: Page) -> None:
    """Radio buttons of one name are one stop; folded parts have none."""
    controls = 'a[href], button, input, select, summary, [tabindex="0"]'
    wide.driver.execute_script(
        "window.wanted = [...document.querySelectorAll(arguments[0])].filter((one) =>"
        "  one.checkVisibility() && (one.type !== 'radio' || one.checked));"
        "window.seen = new Set(); document.activeElement.blur(); window.scrollTo(0, 0);"
        "document.addEventListener('focusin', (event) => seen.add(event.target));",
        controls,
    )
    wanted = wide.ask("wanted.length")
    assert wanted > 20
    press = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    for _ in range(wanted + 5):
        for kind in ("rawKeyDown", "keyUp"):
            wide.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": kind, **press})
    missed = wide.ask(
        "wanted.filter((one) => !seen.has(one)).map((one) => one.outerHTML.slice(0, 99))"
    )
    assert missed == []
