"""Figures for a paper: the numbers of the page, at the size asked for, known apart in grey."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isthmus as package
from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, federate
from isthmus.errors import IsthmusError
from isthmus.report import figures
from isthmus.report.contents import PRINT_FIGURES
from isthmus.report.figures import curves, gain, path, reliability
from isthmus.run import cross
from isthmus.run.landscape import survey
from isthmus.run.record import RecordedRun, read

saving = pytest.importorskip(
    "isthmus.report.figures.printing", reason="matplotlib is not installed"
)

Write = Callable[..., Path]


@pytest.fixture
def simplex(tiny: Write) -> RecordedRun:
    """Four clients, each at a vertex or between two, and the models at the three vertices."""
    directory = tiny("floco", [0.5, 0.6, 0.7, 0.8])
    table = directory / "clients.csv"
    places = ("1 0 0", "0 1 0", "0 0 1", "0.5 0.5 0")
    lines = table.read_text().splitlines()
    for i, place in enumerate(places):
        lines = [line.replace(f"2,{i},personal,,", f"2,{i},personal,{place},") for line in lines]
        lines += [
            f"2,{i},simplex,{at},test,10,{0.2 * (k + 1)},1,1,0.1,0.2"
            for k, at in enumerate(places[:3])
        ]
    table.write_text("\n".join(lines) + "\n")
    return read(directory)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """A real run with two networks per client, and a plane of their models."""
    place = tmp_path_factory.mktemp("mapped") / "run"
    settings: dict[str, Any] = {"data": {"name": "synthetic", "samples": 240}, "clients": 5}
    federate(Experiment(method="fedsimsup", rounds=2, epochs=1, **settings), out=place)
    with package.open(place) as opened:
        survey(place, opened, points=4)
        cross.survey(place, opened, [0, 2, 3], "test")
    return read(place)


def test_curves_have_the_numbers_of_the_page(five: list[RecordedRun]) -> None:
    given = saving.choose_input(five, "loss")
    figure = saving.draw(PRINT_FIGURES["seconds"].build(given))
    drawn = [line.get_xydata() for line in figure.axes[0].lines]
    found = [curves.collect_series(group, "loss") for group in given.groups]
    lines = curves.draw_lines(found, curves.SECONDS)
    assert len(drawn) == len(five)
    for given, line in zip(drawn, lines, strict=True):
        assert line is not None
        assert np.array_equal(given, np.stack([line.x, line.mean], axis=1))


def test_lines_differ_in_grey(five: list[RecordedRun]) -> None:
    figure = saving.draw(reliability.draw(saving.choose_input(five)))
    _, *lines = figure.axes[0].lines
    assert len({str(line.get_marker()) for line in lines}) == len(five)


def test_gains_are_sorted_and_counted_over_all_seeds(tiny: Write) -> None:
    """Gains of -10 and 10 with seed 1, of 0 and 20 with seed 2, two clients each."""
    runs = []
    for seed, digest, top1 in ((1, "11", [0.6, 0.4]), (2, "22", [0.5, 0.7])):
        about: dict[str, Any] = {"seed": seed, "federation": digest}
        runs.append(read(tiny("local", [0.5] * 4, f"local-{seed}", **about)))
        runs.append(read(tiny("fedavg", 2 * top1, f"fedavg-{seed}", **about)))
    drawing = gain.draw(saving.choose_input(runs))
    figure = saving.draw(drawing)
    _, line = figure.axes[0].lines
    assert line.get_ydata().tolist() == [-10, -10, 0, 0, 10, 10, 20, 20]
    check(drawing.caption)
    figure = saving.draw(gain.draw(saving.choose_input(runs, seed=2)))
    assert figure.axes[0].lines[1].get_ydata().tolist() == [0, 0, 20, 20]


def test_paths_are_means_over_clients_with_an_own_end(five: list[RecordedRun]) -> None:
    figure = saving.draw(path.draw(saving.choose_input(five)))
    above, below = figure.axes
    along = five[3].along()
    assert along is not None
    assert above.lines[0].get_ydata().tolist() == (100 * along.mean("top1")).tolist()
    assert sum(below.lines[0].get_ydata()) == pytest.approx(100)
    assert {text.get_text() for text in above.texts} == {
        "fedavg, shared model",
        "local, training alone",
    }


@pytest.mark.parametrize("name", sorted(PRINT_FIGURES))
def test_every_figure_is_saved_as_it_was_before(
    name: str, five: list[RecordedRun], simplex: RecordedRun, mapped: RecordedRun, tmp_path: Path
) -> None:
    """The same figure is the same file, 3.3 inches or 237.6 points wide."""
    others = {"landscape": [mapped], "similarity": [mapped], "cross": [mapped]}
    runs = ({"simplex": [simplex]} | others).get(name, five)
    first = saving.save(runs, name, tmp_path / "a.svg")
    again = saving.save(runs, name, tmp_path / "b.svg")
    text = first.path.read_text()
    assert text == again.path.read_text()
    assert re.search(r'<svg[^>]* width="237.6pt"', text)
    assert first.caption.endswith(".")
    assert sorted(path.name for path in tmp_path.glob("*.svg*")) == ["a.svg", "b.svg"]


def test_pages_of_a_journal_get_the_sizes_and_kinds_they_ask_for(
    five: list[RecordedRun], tmp_path: Path
) -> None:
    """6.9 by 2 inches at 300 points to the inch."""
    image = saving.save(five, "rounds", tmp_path / "a.png", width=6.9, height=2).path.read_bytes()
    assert [int.from_bytes(image[i : i + 4]) for i in (16, 20)] == [2070, 600]
    document = saving.save(five, "gain", tmp_path / "a.pdf").path.read_bytes()
    assert document.startswith(b"%PDF")
    assert b"/FontFile2" in document  # TrueType, inside the file


def test_numbers_chosen_on_test_data_are_marked(write: Write, tmp_path: Path) -> None:
    run = read(write("superfed-mm", selection="oracle"))
    drawn = saving.save([run], "rounds", tmp_path / "a.svg")
    assert "<!-- superfed-mm† -->" in drawn.path.read_text()
    check(drawn.caption)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "round"},
        {"metric": "los"},
        {"name": "gain", "metric": "loss"},
        {"model": "own"},
        {"seed": 9},
        {"out": "a.jpeg"},
        {"width": 0.0},
        {"name": "bytes"},
        {"name": "path"},
        {"name": "simplex"},
        {"name": "landscape"},
        {"name": "cross"},
        {"name": "similarity"},
        {"name": "gain"},
        {"model": "shared"},
    ],
)
def test_a_wrong_wish_is_one_clear_line(changes: dict[str, Any], five: list[RecordedRun]) -> None:
    wish = {"name": "rounds", "out": "a.svg"} | changes
    with raises(IsthmusError):
        saving.save(five[:1], **wish)


def test_the_command_saves_and_says_what_to_write_under_it(
    isthmus: Isthmus, five: list[RecordedRun]
) -> None:
    paths = [str(run.path) for run in five]
    said = isthmus("figure", *paths, "bytes", "--columns", "2", "--out", "deep/bytes.pdf")
    assert said.code == 0, said.err
    check(said.out)
    assert said.out.splitlines()[-1] == "figure: deep/bytes.pdf"
    assert Path("deep/bytes.pdf").is_file()
    check(isthmus("figure", paths[0], "gains").mistake)


def test_every_figure_is_listed(isthmus: Isthmus) -> None:
    assert "isthmus list figures" in isthmus("figure", "--help").out
    said = isthmus("list", "figures").out
    assert all(name in said for name in PRINT_FIGURES)


def test_without_matplotlib_the_command_says_what_to_install(
    isthmus: Isthmus, five: list[RecordedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "isthmus.report.figures.printing")
    monkeypatch.delattr(figures, "printing")
    check(isthmus("figure", str(five[0].path), "gain").mistake)
