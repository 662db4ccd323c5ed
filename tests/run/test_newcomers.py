"""What is found of newcomers stays with the run: in its table, in `show`, on the page."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isthmus as package
from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.report import page
from isthmus.report.tables.sections import summarize_newcomers
from isthmus.run import record as reader
from small import read_rows

SETTINGS: dict[str, Any] = {
    "method": "fedavg",
    "data": {"name": "synthetic", "samples": 120, "features": 4, "classes": 3},
    "clients": 4,
    "clients_per_round": 2,
    "epochs": 1,
    "rounds": 2,
    "model": {"name": "mlp", "hidden": 4},
}
NEW = ("time", "data", "digest", "round")  # columns that older versions did not write


def rows(run: Path) -> list[dict[str, str]]:
    return read_rows(run / "newcomers.csv")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run, and beside it a file of two newcomers with 30 examples each."""
    federate(Experiment(**SETTINGS), out=tmp_path / "run")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 4)).astype(np.float32)
    np.savez(tmp_path / "new.npz", x=x, y=rng.integers(3, size=60), client=np.arange(60) % 2)
    return tmp_path / "run"


@pytest.mark.parametrize("shots", ["-5", "0"])
def test_no_training_examples_are_refused(isthmus: Isthmus, run: Path, shots: str) -> None:
    check(isthmus("adapt", run, "--data", "new.npz", "--shots", shots).mistake)
    assert not (run / "newcomers.csv").exists()


def test_each_time_adds_its_rows_and_a_resumed_run_keeps_them(isthmus: Isthmus, run: Path) -> None:
    assert isthmus("adapt", run, "--data", "new.npz", "--shots", 5).code == 0
    first = rows(run)
    assert {(row["shots"], row["client"], row["model"], row["split"]) for row in first} == {
        (shots, client, model, split)
        for shots in ("5", "all")
        for client in ("0", "1")
        for model in ("newcomer", "shared")
        for split in ("validation", "test")
    }
    assert {row["data"] for row in first} == {str(Path("new.npz").resolve())}
    assert {row["round"] for row in first} == {"2"}
    assert len({row["digest"] for row in first}) == len({row["time"] for row in first}) == 1
    isthmus("resume", run, "--rounds", 3)
    assert isthmus("adapt", run, "--data", "new.npz", "--shots", 7).code == 0
    both = rows(run)
    assert both[: len(first)] == first
    assert {(row["round"], row["shots"]) for row in both[len(first) :]} == {
        ("3", "7"),
        ("3", "all"),
    }


def test_show_and_page_say_which_models_of_whom_where_and_when(isthmus: Isthmus, run: Path) -> None:
    """The means are those of the rows, over the two newcomers' test parts."""
    assert "newcomers" not in isthmus("show", run).out
    assert "joined afterwards" not in page.render([reader.read(run)])
    isthmus("adapt", run, "--data", "new.npz", "--shots", 5)
    few, whole = json.loads(isthmus("show", run, "--json").out)["newcomers"]
    assert (few["shots"], whole["shots"], few["clients"], few["round"]) == ("5", "all", 2, 2)
    for model, name in (
        ("newcomer", "newcomer_top1_test_mean"),
        ("shared", "shared_top1_test_mean"),
    ):
        top1 = [
            float(row["top1"])
            for row in rows(run)
            if (row["shots"], row["model"], row["split"]) == ("5", model, "test")
        ]
        assert few[name] == pytest.approx(np.mean(top1), abs=1e-7)
    check(isthmus("show", run).out)
    text = page.render([reader.read(run)])
    assert 'id="newcomers"' in text
    assert "new.npz" in text


def test_newcomers_in_files_join_those_that_were_held_out(isthmus: Isthmus, run: Path) -> None:
    """Also where the file has fewer columns, as one of an older version."""
    for name, age in (("now", 0), ("then", 1)):
        federate(Experiment(**SETTINGS | {"held_out": 0.25}), out=name)
        there = rows(Path(name))
        assert {row["data"] for row in there} == {"held_out"}
        if age:
            older = [{k: v for k, v in row.items() if k not in NEW} for row in there]
            with (Path(name) / "newcomers.csv").open("w", newline="") as file:
                table = csv.DictWriter(file, list(older[0]), lineterminator="\n")
                table.writeheader()
                table.writerows(older)
            assert {each.time for each in summarize_newcomers(reader.read(name))} == {""}
        assert isthmus("adapt", name, "--data", "new.npz", "--shots", 5).code == 0
        kept = rows(Path(name))[: len(there)]
        figures = [[row[key] for key in row if key not in NEW] for row in kept]
        assert figures == [[row[key] for key in row if key not in NEW] for row in there]
        assert {row["shots"] for row in rows(Path(name))[len(there) :]} == {"5", "all"}
        isthmus("report", name)


def test_a_name_of_any_bytes_stays_in_its_line(run: Path) -> None:
    rng = np.random.default_rng(2)
    data = Federation.of(rng.standard_normal((30, 4)), rng.integers(3, size=30), np.zeros(30, int))
    with package.open(run) as opened:
        found = opened.join(data, [None])
        opened.record(found, data, os.fsdecode(b'a\nb,"\xff.npz'))
    (name,) = {row["data"] for row in rows(run)}
    assert name.endswith('a b," .npz')
    assert len(summarize_newcomers(reader.read(run))) == 1


def test_a_number_of_shots_is_checked_in_python_too(run: Path) -> None:
    with package.open(run) as opened, raises(IsthmusError):
        opened.join(opened.setting.federation, [0])
