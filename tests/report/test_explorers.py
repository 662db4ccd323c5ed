"""The explorers in a real browser: what is chosen is what is drawn, and it was recorded."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import isthmus
from browser import chromium, complaints, requested
from golden import check
from isthmus import Experiment, federate
from isthmus.report import page, read
from isthmus.report.figures import measured
from isthmus.run import landscape as measuring
from isthmus.run.record import RecordedRun

METHODS: dict[str, dict[str, Any]] = {
    "superfed-mm": {"start": 0.2},
    "apfl": {"adaptive": True},
    "floco": {"vertices": 3, "tau": 1, "rho": 0.2},
    "fedsimsup": {},
}
# Numbers on the page have five significant digits, those of surfaces four.
CLOSE = {"rel": 5e-5, "abs": 1e-9}
NEAR = {"rel": 5e-4, "abs": 1e-9}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedRun]:
    folder = tmp_path_factory.mktemp("explored")
    settings = {"clients": 8, "clients_per_round": 6, "rounds": 3, "epochs": 2, "lr": 0.1}
    data = {"name": "synthetic", "samples": 400}
    for name, options in METHODS.items():
        method = {"name": name, **options}
        federate(Experiment(method=method, data=data, **settings), out=folder / name)
        with isthmus.open(folder / name) as opened:
            measuring.survey(folder / name, opened, points=5)
    return [read(folder / name) for name in METHODS]


@pytest.fixture(scope="module")
def driver(runs: list[RecordedRun], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("browser")
    place = page.write(runs, folder / "report.html")
    with chromium(folder / "profile") as driver:
        driver.get(place.as_uri())
        yield driver


def traces(driver: Any, figure: str, view: str) -> list[dict[str, Any]]:
    """Gives what a figure draws in a view and takes from tables."""
    found = driver.execute_script(
        "return document.getElementById(arguments[0]).data"
        ".filter(({ visible, meta }) => visible !== false && meta && meta.from)"
        ".map(({ x, y, z, marker, meta }) => ({ x, y, z, marker, meta }))",
        figure,
    )
    return [trace for trace in found if trace["meta"].get("view", view) == view]


def press(driver: Any, control: str, key: str, times: int = 1) -> Any:
    from selenium.webdriver.common.keys import Keys

    found = driver.find_element("id", control)
    found.send_keys(getattr(Keys, key) * times)
    return found


def choose(driver: Any, control: str, text: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(driver.find_element("id", control)).select_by_visible_text(text)


@pytest.mark.parametrize("place", [0, 1])
def test_the_slider_moves_the_dots_to_the_recorded_values(
    runs: list[RecordedRun], driver: Any, place: int
) -> None:
    """Home is lambda 0; three steps of eleven places from there are lambda 0.3."""
    run = runs[place]
    choose(driver, "path-run", run.method)
    slider = f"slider-path-{place}"
    press(driver, slider, "HOME")
    control = press(driver, slider, "ARROW_RIGHT", 3)
    rows = np.isin(run.clients.model, ("path", "line")) & (run.clients.split == "test")
    rows &= (run.clients.round == run.last) & np.isclose(run.clients.lam, 0.3)
    assert rows.sum() >= 2
    for view, factor in (("top1", 100), ("loss", 1), ("ece", 100)):
        # A click of the mouse would have to wait until the page has scrolled there.
        driver.execute_script(f"document.querySelector('[name=path-metric][value={view}]').click()")
        recorded = factor * getattr(run.clients, view)[rows]
        dots, mean = traces(driver, f"figure-path-{place}", view)
        assert dots["x"] == pytest.approx([0.3] * len(recorded))
        assert dots["y"] == pytest.approx(recorded.tolist(), **CLOSE)
        assert mean["x"] == pytest.approx([0.3])
        assert mean["y"] == pytest.approx([recorded.mean()], **CLOSE)
        (beside,) = traces(driver, f"figure-path-{place}-clients", view)
        assert beside["y"] == dots["y"]
    said = f"λ = 0.3: mean accuracy {100 * run.clients.top1[rows].mean():.2f} %"
    assert control.get_attribute("aria-valuetext").startswith(said)
    assert driver.find_element("id", f"{slider}-said").text.startswith(said)


def test_another_client_changes_the_surface(runs: list[RecordedRun], driver: Any) -> None:
    surface = measured.collect_surface(runs[2])
    assert surface is not None
    assert surface.measured
    seen = []
    for name in ("the test part of client 2", "the test part of client 5", "the server's test set"):
        choose(driver, "choice-simplex-2", name)
        models = next(t for t in traces(driver, "figure-simplex-2", "top1") if "view" in t["meta"])
        d = surface.on.index(name.split()[-1] if "client" in name else "server")
        recorded = 100 * surface.values["top1"][d]
        assert models["marker"]["color"] == pytest.approx(recorded.tolist(), **NEAR)
        ring = next(t for t in traces(driver, "figure-simplex-2", "top1") if "ring x" in str(t))
        assert len(ring["x"]) == ("client" in name)
        seen.append(models["marker"]["color"])
    assert seen[0] != seen[1]
    check(driver.find_element("id", "choice-simplex-2-said").text)


def test_the_landscape_is_of_the_data_chosen(runs: list[RecordedRun], driver: Any) -> None:
    found = measured.read_landscape(runs[0])
    assert found is not None
    choose(driver, "landscape-run", "superfed-mm")
    d = next(d for d, name in enumerate(found.on) if name != "server")
    choose(driver, "choice-landscape-0", f"the test part of client {found.on[d]}")
    grid = next(t for t in traces(driver, "figure-landscape-0", "loss") if t["z"])
    assert np.array(grid["z"]) == pytest.approx(np.log10(found.values["loss"][d]), abs=1e-3)
    choose(driver, "shape-landscape-0", "a surface, which can be turned")
    surface, marks = traces(driver, "figure-landscape-0-surface", "loss")
    assert surface["z"] == grid["z"]
    heights = [np.log10(model.values["loss"][d]) for model in found.models]
    assert marks["z"][::3] == pytest.approx(heights, abs=1e-3)  # then its name's, and a gap


def test_the_page_is_quiet_and_asks_for_nothing(driver: Any) -> None:
    """Last, when everything has been drawn."""
    assert complaints(driver) == []
    assert requested(driver) == set()
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 1400
