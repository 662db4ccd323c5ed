"""Every personal model on everybody's data: what is measured, written, drawn."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import isthmus
from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.report.contents import SECTIONS
from isthmus.report.figures import cross as drawn
from isthmus.report.section import collect
from isthmus.run.record import read
from small import CLASSES, FEATURES, federation, read_rows

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "samples": 200},
    "clients": 4,
    "clients_per_round": 4,
    "lr": 0.1,
    "rounds": 2,
    "model": {"name": "mlp", "hidden": 8},
    "seed": 3,
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp("runs")

    def run_of(method: str, **changes: Any) -> Path:
        path = folder / "-".join([method, *changes])
        if not path.exists():
            federate(Experiment(method=method, **(SETTINGS | changes)), out=path)
        return path

    return run_of


@pytest.mark.parametrize("method", ["local", "fedavg", "superfed-mm", "fedsimsup", "fedproto"])
def test_its_diagonal_is_what_the_run_recorded(method: str, run_of: Callable[..., Path]) -> None:
    """A plain module adds in another order than the engine does: float32."""
    run = run_of(method)
    recorded = read(run)
    with isthmus.open(run) as opened:
        found = opened.cross()
    assert found.top1.shape == found.loss.shape == (4, 4)
    assert np.diagonal(found.top1).tolist() == pytest.approx(recorded.values("top1").tolist())
    assert np.diagonal(found.loss) == pytest.approx(recorded.values("loss"), rel=1e-4)
    assert found.n.tolist() == recorded.federation.test.tolist()
    assert found.rounds.tolist() == [2] * 4


def test_a_cell_is_one_client_s_model_on_another_s_data(run_of: Callable[..., Path]) -> None:
    with isthmus.open(run_of("local")) as opened:
        found = opened.cross([3, 1], "validation")
        x, y = opened.setting.federation.split(1, "validation")
        right = (opened.client(3)(x).argmax(1) == y).double().mean()
    assert found.clients.tolist() == [3, 1]
    assert found.top1[0, 1] == pytest.approx(float(right))


def test_examples_that_mix_in_a_network_go_through_it_client_by_client(
    tmp_path: Path,
) -> None:
    def build() -> nn.Module:
        normal = nn.BatchNorm1d(8, track_running_stats=False)
        return nn.Sequential(nn.Linear(FEATURES, 8), normal, nn.Linear(8, CLASSES))

    data = federation(sizes=(40, 40, 40, 40))  # batch normalisation refuses a single example
    settings: dict[str, Any] = {"clients_per_round": 4, "rounds": 1, "batch_size": 64}
    run = tmp_path / "run"
    federate(Experiment(method="local", **settings), model=build, data=data, out=run)
    with isthmus.open(run, model=build, data=data) as opened:
        found = opened.cross([0, 1])
        assert [found.top1[k, k] for k in (0, 1)] == [opened.client(i).top1() for i in (0, 1)]


def test_one_point_for_all_clients_is_chosen_once(
    run_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import isthmus.run.open as module

    run, asked = run_of("superfed-mm", selection="common"), []
    choose = module.choose_for_all
    monkeypatch.setattr(module, "choose_for_all", lambda *given: asked.append(1) or choose(*given))
    with isthmus.open(run) as opened:
        found = opened.cross()
    assert asked == [1]
    assert np.diagonal(found.top1).tolist() == pytest.approx(read(run).values("top1").tolist())


def test_the_command_leaves_a_table_that_the_report_draws(
    run_of: Callable[..., Path], isthmus: Isthmus
) -> None:
    run = run_of("local")
    section = next(section for section in SECTIONS if section.name == "cross")
    said = isthmus("cross", run).out
    check(said)
    assert "model of" in said  # the whole table, of so few
    rows = read_rows(run / "cross.csv")
    assert len(rows) == 16
    assert {row["model"] for row in rows} == {"personal"}
    shown = section.show(collect([read(run)]))
    assert shown is not None
    (figure,) = shown.figures.values()
    assert figure.x.title == "test data of client"
    assert figure.y.title == "personal model of client"
    (panel,) = shown.values["panels"]
    assert (panel.found.split, panel.found.when) == ("test", "round 2")


def test_a_table_that_lacks_rows_is_one_clear_line(
    run_of: Callable[..., Path], isthmus: Isthmus
) -> None:
    run = run_of("local")
    isthmus("cross", run, "--sample", 3)
    recorded = read(run)
    found = drawn.read_cross(recorded)
    assert found is not None
    assert len(found.client) == 3
    table = run / "cross.csv"
    whole = table.read_text()
    table.write_text("\n".join(whole.splitlines()[:-1]) + "\n")
    with raises(IsthmusError):
        drawn.read_cross(recorded)
    table.unlink()


@pytest.mark.parametrize(
    "words",
    [
        ["--clients", "0,9"],
        ["--clients", "1"],
        ["--sample", "9"],
        ["--sample", "2", "--clients", "0,1"],
        ["--split", "tets"],
    ],
)
def test_a_wrong_wish_is_one_clear_line(
    words: list[str], run_of: Callable[..., Path], isthmus: Isthmus
) -> None:
    check(isthmus("cross", run_of("local"), *words).mistake)
