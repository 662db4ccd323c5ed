"""The section about simplices, from the records of real runs."""

from pathlib import Path

import numpy as np
import pytest

from golden import raises
from isthmus import Experiment, federate
from isthmus.errors import IsthmusError
from isthmus.report import page, read
from isthmus.report.figures import simplex
from isthmus.report.figures.figure import Figure, Points
from isthmus.report.figures.measured import read_landscape
from isthmus.run.record import RecordedRun


def record(place: Path, vertices: int, tau: int) -> RecordedRun:
    method = {"name": "floco", "vertices": vertices, "tau": tau, "rho": 0.2}
    data = {"name": "synthetic", "samples": 400}
    settings = {"rounds": 2, "epochs": 1, "eval_every": 1, "selection": "oracle"}
    federate(Experiment(method=method, data=data, clients=8, **settings), out=place)
    return read(place)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return record(tmp_path_factory.mktemp("runs") / "placed", vertices=3, tau=1)


def draw(run: RecordedRun) -> Figure:
    surface = simplex.collect_surface(run)
    assert surface is not None
    return simplex.build(run, surface)


def test_nothing_of_it_is_said_to_be_chosen(run: RecordedRun) -> None:
    """Not even where the experiment names an oracle: each client has its place."""
    assert run.selection is None
    assert not run.chosen_on_test
    assert run.along() is None


def test_clients_are_drawn_at_their_points(run: RecordedRun) -> None:
    """On the triangle with a corner at the top, (x, y) = alpha_1 (0, 1) + ..., to 5 digits."""
    clients = simplex.find_places(run)
    assert clients.at.shape == (8, 3)
    (discs,) = [mark for mark in draw(run).marks if mark.name == "clients"]
    heights = clients.at @ [1, -0.5, -0.5]
    assert list(discs.y) == pytest.approx(heights, abs=1e-4)
    main = run.federation.labels.argmax(1)
    assert list(discs.labels) == [str(c) for c in main]


def test_models_are_coloured_by_the_mean_over_clients(run: RecordedRun) -> None:
    models = [mark for mark in draw(run).marks if isinstance(mark, Points) and mark.shade]
    assert [mark.shown["view"] for mark in models] == ["top1", "loss"]
    rows = (run.clients.model == "simplex") & (run.clients.split == "test")
    rows &= (run.clients.round == run.last) & (run.clients.at == "1 0 0")
    assert rows.sum() == 8
    place = list(models[1].data).index("1 0 0")
    mean = float(np.mean(run.clients.loss[rows]))
    assert models[1].colour[place] == pytest.approx(mean)


def test_the_outline_of_a_region_is_where_its_radius_ends() -> None:
    """At a corner with rho = 0.2, a triangle: 0.1 goes to one of the others; inside, a hexagon."""
    corners = np.array([[0.0, 1.0], [-1.0, 0.0], [1.0, 0.0]])

    def ends(alpha: list[float]) -> set[tuple[float, float]]:
        found = simplex.outline_region(np.array(alpha), 0.2, corners)
        return {(round(x, 6) + 0.0, round(y, 6) + 0.0) for x, y in found.tolist()}

    assert ends([1.0, 0.0, 0.0]) == {(0.0, 1.0), (-0.1, 0.9), (0.1, 0.9)}
    assert len(ends([0.4, 0.3, 0.3])) == 6
    assert ends([0.0, 0.5, 0.5]) == {(-0.1, 0.1), (0.1, 0.1), (-0.2, 0.0), (0.2, 0.0)}


@pytest.mark.parametrize(("vertices", "tau"), [(1, 1), (2, 1), (5, 1), (3, 9)])
def test_any_simplex_has_its_section(tmp_path: Path, vertices: int, tau: int) -> None:
    other = record(tmp_path / "run", vertices, tau)
    text = page.render([other])
    assert 'id="simplex"' in text
    placed = "no client has a position yet" not in text
    assert placed == (vertices > 1 and tau < 2)
    assert "figure-path" not in text
    assert not other.chosen_on_test


def test_runs_without_a_simplex_have_no_such_section(tmp_path: Path) -> None:
    settings = {"data": {"name": "synthetic", "samples": 400}, "clients": 8, "epochs": 1}
    federate(Experiment(method="fedavg", rounds=1, **settings), out=tmp_path / "run")
    assert 'id="simplex"' not in page.render([read(tmp_path / "run")])


@pytest.mark.parametrize(
    ("at", "loss"),
    [
        ("1 0", "0.5"),
        ("1 0 x", "0.5"),
        ("1 0 0", "nan"),
    ],
)
def test_a_damaged_table_of_a_simplex_is_one_clear_line(
    run: RecordedRun, tmp_path: Path, at: str, loss: str
) -> None:
    rows = [f"0,{at}", "0,0 1 0", f"1,{at}", "1,0 1 0"]
    losses = ["0.5", "0.5", loss, "0.5"]
    lines = [f"2,{row},test,5,0.5,{each}" for row, each in zip(rows, losses, strict=True)]
    head = "round,client,at,split,n,top1,loss"
    (tmp_path / "simplex.csv").write_text("\n".join([head, *lines]) + "\n")
    with raises(IsthmusError):
        simplex.collect_surface(run._replace(path=tmp_path))


def test_a_model_of_no_known_kind_in_a_plane_is_one_clear_line(
    run: RecordedRun, tmp_path: Path
) -> None:
    head = "round,model,of,x,y,client,split,n,top1,loss"
    lines = ["2,,,0,0,0,test,5,0.5,0.5", "2,odd,,0,0,0,test,5,0.5,0.5"]
    (tmp_path / "landscape.csv").write_text("\n".join([head, *lines]) + "\n")
    with raises(IsthmusError):
        read_landscape(run._replace(path=tmp_path))
