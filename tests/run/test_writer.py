"""Tables: rounds append to them, and they are cut back to what was committed."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus import Experiment, IsthmusError, federate, resume
from isthmus.evaluation import Evaluation, Score
from isthmus.metrics.score import Figures
from isthmus.run import schema
from isthmus.run.columns import columns, read_arrays
from isthmus.run.database import Database
from isthmus.run.loop import RoundResult
from isthmus.run.store import STATE, TABLE_SIZES, RoundUpdate
from isthmus.run.writer import Cost, round_rows, table_text

SETTINGS: dict[str, Any] = {
    "method": {"name": "superfed-mm", "start": 0.5},
    "data": {"name": "synthetic", "samples": 120},
    "clients": 4,
    "clients_per_round": 2,
    "epochs": 1,
    "rounds": 6,
    "eval_every": 2,
    "model": {"name": "mlp", "hidden": 8},
}
TABLES = ("rounds", "clients", "notes", "reliability")


def begin(path: Path, count: int, **changes: Any) -> Path:
    """Run so many rounds."""

    def stop(result: RoundResult) -> bool:
        return result.cost.round == count

    federate(Experiment(**SETTINGS | changes), out=path, watch=stop)
    return path


def read_all(path: Path) -> dict[str, str]:
    """The tables of a run, without the seconds of its rounds."""
    texts = {table: (path / f"{table}.csv").read_text() for table in TABLES}
    lines = texts["rounds"].splitlines()
    return texts | {"rounds": "\n".join(line.rsplit(",", 2)[0] for line in lines)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return begin(tmp_path_factory.mktemp("writer") / "whole", 6)


def test_a_cost_has_the_columns_of_its_table() -> None:
    assert list(Cost._fields) == schema.names(schema.ROUNDS)


def store_rows(path: Path) -> None:
    """Turn a run into one of format 3, which has the rows in its database."""
    database = Database(path / STATE)
    changes: dict[bytes, bytes | None] = {TABLE_SIZES: None, b"newcomers/%012d" % 0: b"rows"}
    for number in range(1, 5):
        head: dict[str, dict[str, Any]] = {}
        packed = b""
        for table in TABLES:
            there = columns(path / f"{table}.csv", [])
            rows = [k for k, text in enumerate(there["round"]) if text == str(number)]
            head[table] = {}
            for column in schema.TABLES[table]:
                texts: list[Any] = [there[column.name][k] for k in rows]
                if column.type is tuple:
                    texts = [[float(each) for each in text.split()] for text in texts]
                elif column.type is not str:
                    texts = [column.type(text) if text else None for text in texts]
                if column.type is float and not column.may_be_empty:
                    packed += np.asarray(texts, "<f8").tobytes()
                head[table][column.name] = (
                    None if column.type is float and not column.may_be_empty else texts
                )
        changes[b"round/%012d" % number] = zlib.compress(json.dumps(head).encode() + b"\n" + packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isthmus.run.database.FORMAT", b"isthmus run 3")
        database.write(changes)
    database.close()


def test_the_rows_of_a_run_of_format_3_move_into_its_tables(tmp_path: Path, whole: Path) -> None:
    """Also where the process was killed before it had written the tables."""
    path = begin(tmp_path / "run", 4)
    store_rows(path)
    (path / "clients.csv").unlink()
    resume(path)
    assert read_all(path) == read_all(whole)
    database = Database(path / STATE)
    assert not [*database.keys(b"round/"), *database.keys(b"newcomers/")]
    database.close()


def test_what_was_not_committed_is_cut_off(tmp_path: Path, whole: Path) -> None:
    path = begin(tmp_path / "run", 4)
    for table in ("rounds", "clients", "calls"):
        with (path / f"{table}.csv").open("a") as file:
            file.write("5,0.1,2")
    resume(path)
    assert read_all(path) == read_all(whole)
    assert not (path / "calls.csv").exists()


def test_a_table_that_lost_rows_is_refused(tmp_path: Path) -> None:
    path = begin(tmp_path / "run", 4)
    file = path / "clients.csv"
    before = file.read_bytes()
    for harm in (b"", before[:-9], before.replace(b"personal", b"mine")):
        file.write_bytes(harm)
        with pytest.raises(IsthmusError, match=r"clients.csv has lost rows of rounds .*; restore"):
            resume(path)
    file.unlink()
    with pytest.raises(IsthmusError, match=r"clients.csv has lost rows"):
        resume(path)
    file.write_bytes(before)
    assert resume(path).progress.t == 6


def test_a_longer_run_has_its_experiment_in_all_tables(tmp_path: Path) -> None:
    changes = {"method": "fedavg", "rounds": 4}
    path = begin(tmp_path / "run", 4, **changes)
    longer = begin(tmp_path / "longer", 6, **changes | {"rounds": 6})
    resume(path, rounds=6)
    assert read_all(path) == read_all(longer)


def test_a_column_that_was_added_later_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begin(tmp_path / "run", 4)
    later = schema.RecordColumn("later", float, ".8g")
    tables = {**schema.TABLES, "notes": (*schema.TABLES["notes"], later)}
    before = columns(path / "notes.csv", [])
    monkeypatch.setattr("isthmus.run.writer.TABLES", tables)
    monkeypatch.setattr("isthmus.run.writer.round_rows", lambda update: {"rounds": [update.cost]})
    resume(path)
    after = columns(path / "notes.csv", [])
    assert after == before | {"later": [""] * len(before["round"])}


def test_rows_in_blocks_are_the_rows_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three clients at two points a path has 6 rows; blocks of two rows, files read by two."""
    at = np.array([[[0.0], [0.5]]] * 3)
    numbers = Figures(*np.arange(8 * 6, dtype=np.float64).reshape(8, 3, 2) / 64)
    score = Score("path", "test", np.arange(3), at, numbers._replace(n=np.full((3, 2), 5)), None)
    cost = Cost(7, 0.1, 2, 2, 1808, 1816, None, 1.25, 0.5)
    update = RoundUpdate((), {}, cost, Evaluation((score,), None), withheld=frozenset([1]))

    def write_and_read() -> tuple[str, list[float]]:
        text = table_text("", "clients", round_rows(update)["clients"])
        (tmp_path / "clients.csv").write_text(text)
        return text, read_arrays(tmp_path / "clients.csv", schema.CLIENTS)["loss"].tolist()

    whole = write_and_read()
    monkeypatch.setattr("isthmus.run.writer.BLOCK", 2)
    monkeypatch.setattr("isthmus.run.columns.LINES", 2)
    assert write_and_read() == whole
    assert len(whole[1]) == 4
