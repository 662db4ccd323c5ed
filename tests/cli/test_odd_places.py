"""Runs that are damaged, places that cannot be written to, names that are not UTF-8."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import Isthmus
from golden import check
from isthmus import Experiment, federate

SETTINGS: dict[str, Any] = {
    "method": "superfed-mm",
    "data": {"name": "synthetic", "samples": 80},
    "clients": 4,
    "clients_per_round": 2,
    "epochs": 1,
    "rounds": 2,
    "eval_every": 1,
    "model": {"name": "mlp", "hidden": 4},
}
TEXT = os.fsdecode(b"\xff\xe9")  # as a file name of another encoding comes in


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "run"
    federate(Experiment(**SETTINGS), out=path)
    return path


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def test_a_damaged_run_is_shown_as_far_as_it_goes_and_is_a_mistake(
    run: Path, isthmus: Isthmus
) -> None:
    table = run / "clients.csv"
    table.write_text(table.read_text().replace("personal", "9,9", 1))
    for more in ([], ["--json"]):
        said = isthmus("show", run, *more)
        check(said.mistake)
        assert "state.lmdb" in said.out
        assert "--json" not in more or json.loads(said.out)["damaged"]


def test_a_run_that_is_not_evaluated_yet_is_no_mistake(run: Path, isthmus: Isthmus) -> None:
    table = run / "clients.csv"
    head = [line for line in table.read_text().splitlines() if line.startswith(("#", "round"))]
    table.write_text("\n".join(head) + "\n")
    said = isthmus("show", run)
    assert (said.code, "no evaluated round yet" in said.out) == (0, True)


@pytest.mark.parametrize("points", [-1, 0, 1, 501, 10**6, 10**30])
def test_a_grid_has_a_bearable_number_of_points(run: Path, isthmus: Isthmus, points: int) -> None:
    check(isthmus("landscape", run, "--points", points).mistake)


@pytest.mark.parametrize("command", ["report", "figure", "export"])
@pytest.mark.parametrize(
    "place", ["file/x.svg", "a" * 300 + ".svg", "b" * 300 + "/x.svg", "/dev/null/x.svg"]
)
def test_what_cannot_be_written_is_named(
    run: Path, isthmus: Isthmus, command: str, place: str
) -> None:
    Path("file").write_text("here")
    commands = {
        "report": ["report", run, "--out", place],
        "figure": ["figure", run, "rounds", "--out", place],
        "export": ["export", run, "--client", "0", "--out", place],
    }
    check(isthmus(*commands[command]).mistake)
    assert Path("file").read_text() == "here"


@pytest.mark.parametrize("place", ["/", ".", "a"])
def test_a_figure_needs_a_file_of_a_kind(run: Path, isthmus: Isthmus, place: str) -> None:
    line = isthmus("figure", run, "rounds", "--out", place).mistake
    check(line)
    assert line.endswith("a.svg" if place == "a" else "rounds.svg")


def test_a_run_may_be_called_by_letters_that_are_not_utf8(run: Path, isthmus: Isthmus) -> None:
    place = run.rename(run.with_name(TEXT))
    other = shutil.copytree(place, run.with_name("other"))
    settings = other / "experiment.toml"
    settings.write_text(settings.read_text().replace("lr = 0.01", "lr = 0.02"))
    for command in (
        ["show", place],
        ["show", place, "--json"],
        ["report", place, other, "--out", run.with_name(f"{TEXT}.html")],
        ["figure", place, "path", "--out", run.with_name(f"{TEXT}.svg")],
        ["export", place, "--client", "0", "--out", run.with_name(f"{TEXT}-models")],
        ["landscape", place, "--points", "2"],
        ["resume", place],
        ["run", place / "experiment.toml", "--out", run.with_name(f"{TEXT}-2")],
    ):
        said = isthmus(*command)
        assert said.code == 0, (command, said.err)


def test_an_experiment_that_no_file_can_hold_is_refused_before_it_runs(
    tmp_path: Path, isthmus: Isthmus
) -> None:
    table = tmp_path / f"{TEXT}.csv"
    table.write_text("a,client,label\n" + "1,p,x\n2,p,y\n1,q,x\n2,q,y\n" * 20)
    few = ["--rounds", 1, "--set", "clients_per_round=1", "--set", "hidden=4"]
    check(isthmus("run", "--data", table, *few, "--out", "out").mistake)
    assert not Path("out").exists()


def test_a_file_of_the_longest_name_gives_its_run_a_shorter_one(isthmus: Isthmus) -> None:
    table = Path("é" * 125 + ".csv")
    table.write_text("a,client,label\n" + "1,p,x\n2,p,y\n1,q,x\n2,q,y\n" * 20)
    few = ["--rounds", 1, "--set", "clients_per_round=1", "--set", "hidden=4"]
    said = isthmus("run", "--method", "fedavg", "--data", table, *few)
    assert f"records: runs/{'é' * 50}-fedavg-0\n" in said.out, said.err


def test_an_experiment_file_without_end_is_refused(isthmus: Isthmus) -> None:
    check(isthmus("run", "/dev/zero", "--out", "out").mistake)
