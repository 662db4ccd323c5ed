"""Models that nobody trained: where they lie, and what was measured of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import isthmus
from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.run import landscape
from small import read_rows

# A plain module adds in another order than the engine's functional call: float32, and 8 digits.
CLOSE = {"rel": 2e-5, "abs": 1e-6}
SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "samples": 240},
    "clients": 5,
    "clients_per_round": 5,
    "epochs": 2,
    "lr": 0.1,
    "rounds": 3,
    "model": {"name": "mlp", "hidden": 8},
    "seed": 3,
}
METHODS: dict[str, dict[str, Any]] = {
    "superfed-mm": {"start": 0.2},
    "apfl": {},
    "fedavg": {},
    "floco": {"vertices": 3, "tau": 1},
    "floco-plus": {"vertices": 4, "tau": 1},
    "fedsimsup": {},
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("runs")

    def run_of(method: str) -> Path:
        if not (folder / method).exists():
            experiment = Experiment(method={"name": method, **METHODS[method]}, **SETTINGS)
            federate(experiment, out=folder / method)
        return folder / method

    return run_of


def recorded(run: Path) -> dict[tuple[str, str, str], float]:
    """The test loss of each client, model and place after the last round."""
    return {
        (row["client"], row["model"], row["at"]): float(row["loss"])
        for row in read_rows(run / "clients.csv")
        if (row["round"], row["split"]) == ("3", "test")
    }


def surveyed(run: Path, **options: Any) -> list[dict[str, str]]:
    with isthmus.open(run) as opened:
        landscape.survey(run, opened, points=3, **options)
    return read_rows(run / "landscape.csv")


@pytest.mark.parametrize("method", ["superfed-mm", "apfl"])
def test_marked_models_score_what_was_recorded(run_of: Callable[[str], Path], method: str) -> None:
    run = run_of(method)
    marked = [row for row in surveyed(run) if row["model"]]
    losses = recorded(run)
    personal = {i: at for i, kind, at in losses if kind == "personal"}
    kinds = [(row["model"], row["of"]) for row in marked if row["client"] == "0"]
    assert kinds == [
        ("shared", ""),
        ("own", "0"),
        ("own", "1"),
        ("personal", "0"),
        ("personal", "1"),
    ]
    points = "path" if method == "superfed-mm" else "line"
    for row in marked:
        own = {"shared": ("shared", ""), "own": (points, "1")}
        kind, at = own.get(row["model"], ("personal", personal.get(row["of"], "")))
        if row["client"] == row["of"] or kind == "shared":
            assert float(row["loss"]) == pytest.approx(losses[row["client"], kind, at], **CLOSE)
            assert (row["round"], row["split"]) == ("3", "test")


def test_distances_in_the_plane_are_those_between_models(run_of: Callable[[str], Path]) -> None:
    run = run_of("superfed-mm")
    rows = surveyed(run, clients=[0, 2])
    places = {
        (row["model"], row["of"]): np.array([float(row["x"]), float(row["y"])])
        for row in rows
        if row["model"]
    }
    with isthmus.open(run) as opened:
        models = {(m.kind, m.of): m.w for m in landscape.models(opened, [0, 2], None)}
    assert list(places) == list(models)
    for a in models:
        for b in models:
            apart = float(torch.linalg.vector_norm(models[a].double() - models[b].double()))
            assert np.linalg.norm(places[a] - places[b]) == pytest.approx(apart, abs=1e-6)


def test_how_many_models_are_measured_together_changes_nothing(
    run_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("floco")
    together = surveyed(run), read_rows(run / "simplex.csv")
    monkeypatch.setattr(landscape, "NUMBERS", 1)
    assert (surveyed(run), read_rows(run / "simplex.csv")) == together


def test_a_place_of_the_plane_is_its_model() -> None:
    """With a = (0, 0, 1), b = (3, 0, 1), c = (1, 2, 1): e1 = (1, 0, 0), e2 = (0, 1, 0)."""
    corners = torch.tensor([[0.0, 0, 1], [3, 0, 1], [1, 2, 1]])
    plane = landscape.plane_through(*corners)
    assert [plane.where(corner) for corner in corners] == [(0, 0), (3, 0), (1, 2)]
    assert plane.at(1, 2).tolist() == [1, 2, 1]
    assert plane.at(-1, 0.5).tolist() == [-1, 0.5, 1]


def test_the_grid_holds_all_models_and_a_margin(run_of: Callable[[str], Path]) -> None:
    """Three points along each side: low, middle, high; 0.3 of the larger extent around."""
    rows = surveyed(run_of("superfed-mm"), on=["1"])
    marked = np.array([[float(row["x"]), float(row["y"])] for row in rows if row["model"]])
    grid = np.array([[float(row["x"]), float(row["y"])] for row in rows if not row["model"]])
    margin = 0.3 * np.ptp(marked, axis=0).max()
    assert grid.shape == (9, 2)
    assert grid.min(0) == pytest.approx(marked.min(0) - margin, rel=1e-6)
    assert grid.max(0) == pytest.approx(marked.max(0) + margin, rel=1e-6)
    assert {row["client"] for row in rows} == {"1"}


def test_two_runs_shared_models_lie_side_by_side(run_of: Callable[[str], Path]) -> None:
    run, other = run_of("superfed-mm"), run_of("fedavg")
    with isthmus.open(other) as opened:
        third = landscape.shared_model(opened, other.name)
    rows = surveyed(run, clients=[1], third=third)
    (row,) = [
        row for row in rows if (row["model"], row["of"], row["client"]) == ("shared", "fedavg", "1")
    ]
    assert float(row["loss"]) == pytest.approx(recorded(other)["1", "shared", ""], **CLOSE)


def test_three_clients_span_a_plane_where_nothing_is_shared(
    run_of: Callable[[str], Path],
) -> None:
    run = run_of("fedsimsup")
    rows = [row for row in surveyed(run) if row["model"]]
    assert {(row["model"], row["of"]) for row in rows} == {("personal", str(i)) for i in range(3)}
    losses = recorded(run)
    for row in rows:
        if row["client"] == row["of"]:
            assert float(row["loss"]) == pytest.approx(losses[row["of"], "personal", ""], **CLOSE)


@pytest.mark.parametrize("method", ["floco", "floco-plus"])
def test_a_finer_simplex_agrees_with_the_recorded_one(
    run_of: Callable[[str], Path], method: str
) -> None:
    """Every client's own simplex at the vertices and the centre; the server's centre is shared."""
    run = run_of(method)
    surveyed(run)
    rows = read_rows(run / "simplex.csv")
    losses = recorded(run)
    found = {(row["client"], row["at"]): float(row["loss"]) for row in rows}
    both = [key for key in found if (key[0], "simplex", key[1]) in losses]
    assert len(both) >= 5 * 5
    for client, at in both:
        expected = losses[client, "simplex", at]
        assert found[client, at] == pytest.approx(expected, **CLOSE)
    centre = next(at for client, at in found if client == "server")  # it comes first
    assert found["server", centre] == pytest.approx(losses["server", "shared", ""], **CLOSE)


def test_nothing_else_in_the_run_changes(run_of: Callable[[str], Path]) -> None:
    run = run_of("apfl")
    before = {file.name: file.read_bytes() for file in run.glob("*.[cjt]*") if file.is_file()}
    surveyed(run)
    after = {file.name: file.read_bytes() for file in run.glob("*.[cjt]*") if file.is_file()}
    assert {name for name in after if after[name] != before.get(name)} <= {"landscape.csv"}
    assert (run / "landscape.csv").read_text().startswith("# preset")


def test_models_that_are_one_span_no_plane(run_of: Callable[[str], Path]) -> None:
    with raises(IsthmusError):
        surveyed(run_of("fedavg"))


def test_models_of_another_size_are_refused(run_of: Callable[[str], Path]) -> None:
    with raises(IsthmusError):
        surveyed(run_of("superfed-mm"), clients=[0], third=("other", torch.zeros(3)))


def test_the_command_measures_and_the_page_draws(
    run_of: Callable[[str], Path], isthmus: Isthmus
) -> None:
    run = run_of("floco")
    (run / "landscape.csv").unlink(missing_ok=True)
    isthmus("report", run)
    page = Path("report.html").read_text()
    assert f"isthmus landscape {run}" in page
    assert "figure-landscape-0" not in page
    said = isthmus("landscape", run, "--points", 3, "--on", "2,0", "--split", "train")
    assert said.code == 0
    assert f"the simplex: {run / 'simplex.csv'}" in said.out
    assert "landscape: 100 % of 9" in said.err
    assert {(row["client"], row["split"]) for row in read_rows(run / "simplex.csv")} == {
        ("0", "train"),
        ("2", "train"),
    }
    isthmus("report", run)
    page = Path("report.html").read_text()
    assert "figure-landscape-0" in page
    check(page)


@pytest.mark.parametrize(
    "words",
    [
        ["--clients", "0,9"],
        ["--clients", "9" * 5000],
        ["--clients", "1,1"],
        ["--clients", "0"],
        ["--on", "nobody"],
        ["--split", "all"],
        ["--points", "1"],
        ["--with", "nowhere"],
    ],
)
def test_a_mistake_is_one_line(
    run_of: Callable[[str], Path], isthmus: Isthmus, words: list[str]
) -> None:
    check(isthmus("landscape", run_of("superfed-mm"), *words).mistake)
