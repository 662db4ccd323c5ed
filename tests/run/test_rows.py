"""Rows of a round as bytes: read back as they were, those of the version before too."""

import csv
import io
import json
import math
import zlib
from pathlib import Path

import lmdb
import numpy as np
import pytest

from isthmus import Experiment, federate, resume
from isthmus.evaluation import Evaluation, Score
from isthmus.metrics.score import Figures
from isthmus.run import schema
from isthmus.run.columns import read_arrays
from isthmus.run.database import FORMAT, FORMAT_KEY, Database
from isthmus.run.loop import RoundResult
from isthmus.run.rows import pack_rows, unpack_rows
from isthmus.run.store import STATE
from isthmus.run.writer import Cost, TableRows, round_rows, table_text

ROWS: TableRows = {
    "rounds": [Cost(7, 0.1 * 0.99**7, 2, 2, 1808, 1816, None, 1.25, 0.5)],
    "clients": [
        (
            7,
            0,
            "path",
            (0.30000000000000004,),
            "test",
            12,
            1 / 3,
            1.0,
            math.inf,
            0.5,
            0.1,
            0.2,
            0.3,
        ),
        (7, "server", "shared", (), "test", 9, 0.5, 1.0, 2.5, 0.5, 0.1, 0.2, 0.3),
    ],
    "notes": [(7, 'a "note", with commas\\nand lines')],
    "reliability": [(7, "personal", "test", 1, 0.0, 1 / 15, 0, None, None)],
}


def plain(rows: TableRows) -> dict[str, list[list[object]]]:
    return {
        table: [[list(v) if isinstance(v, tuple) else v for v in line] for line in lines]
        for table, lines in rows.items()
    }


def test_a_cost_has_the_columns_of_its_table() -> None:
    assert list(Cost._fields) == schema.names(schema.ROUNDS)


def test_rows_are_read_back_to_the_bit() -> None:
    assert plain(unpack_rows(pack_rows(ROWS))) == plain(ROWS)
    nothing = {table: [] for table in ROWS}
    assert unpack_rows(pack_rows(nothing)) == nothing


def test_a_column_that_was_added_later_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack_rows(ROWS)
    later = schema.RecordColumn("later", float, "", format=".8g")
    columns = (*schema.TABLES["clients"], later)
    monkeypatch.setattr("isthmus.run.rows.TABLES", {**schema.TABLES, "clients": columns})
    assert [line[-1] for line in unpack_rows(packed)["clients"]] == [None, None]


SETTINGS = {
    "method": {"name": "superfed-mm", "start": 0.5},
    "data": {"name": "synthetic", "samples": 120},
    "clients": 4,
    "clients_per_round": 2,
    "epochs": 1,
    "rounds": 6,
    "eval_every": 2,
    "model": {"name": "mlp", "hidden": 8},
}
OLDER = ("rounds", "clients", "notes", "reliability")


def lines_of(path: Path, number: int) -> str:
    """The rows of a table that one round added, as the version before kept them."""
    lines = path.read_text().splitlines(keepends=True)
    rows = csv.reader(line for line in lines if not line.startswith("#"))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(r for r in rows if r[0] == str(number))
    return text.getvalue()


def make_older(path: Path) -> None:
    """Turns a run's store into one of the format before: texts of CSV, under its name."""
    database = Database(path / STATE)
    for key in database.keys(b"round/"):
        number = int(key.removeprefix(b"round/"))
        texts = [lines_of(path / f"{table}.csv", number) for table in OLDER]
        database.write({key: zlib.compress(json.dumps(texts).encode(), 1)})
    database.close()
    environment = lmdb.open(str(path / STATE), subdir=False, lock=False)
    with environment.begin(write=True) as transaction:
        transaction.put(FORMAT_KEY, b"isthmus vault 2")
    environment.close()


def test_a_run_of_the_format_before_goes_on_to_the_same_tables(tmp_path: Path) -> None:
    def stop(done: RoundResult) -> bool:
        return done.cost.round == 4

    whole = federate(Experiment(**SETTINGS), out=tmp_path / "whole")
    federate(Experiment(**SETTINGS), out=tmp_path / "older", watch=stop)
    before = (tmp_path / "older" / "rounds.csv").read_text()
    make_older(tmp_path / "older")
    assert resume(tmp_path / "older").digest == whole.digest
    for table in ("clients", "reliability", "notes"):
        texts = [(tmp_path / run / f"{table}.csv").read_text() for run in ("whole", "older")]
        assert texts[0] == texts[1]
    assert (tmp_path / "older" / "rounds.csv").read_text().startswith(before)
    environment = lmdb.open(str(tmp_path / "older" / STATE), subdir=False, lock=False)
    with environment.begin() as transaction:
        assert transaction.get(FORMAT_KEY) == FORMAT
    environment.close()


def test_rows_in_blocks_are_the_rows_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three clients at two points a path has 6 rows; blocks of two rows, files read by two."""
    at = np.array([[[0.0], [0.5]]] * 3)
    numbers = Figures(*np.arange(8 * 6, dtype=np.float64).reshape(8, 3, 2) / 64)
    score = Score("path", "test", np.arange(3), at, numbers._replace(n=np.full((3, 2), 5)), None)
    cost = Cost(7, 0.1, 2, 2, 1808, 1816, None, 1.25, 0.5)

    def write_and_read() -> tuple[dict[str, list[list[object]]], str, list[float]]:
        rows = round_rows(cost, Evaluation((score,), None), withheld=(1,))
        assert len(rows["clients"]) == 4
        text = table_text("", "clients", rows["clients"])
        (tmp_path / "clients.csv").write_text(text)
        read = read_arrays(tmp_path / "clients.csv", schema.CLIENTS)
        return plain(unpack_rows(pack_rows(rows))), text, read["loss"].tolist()

    whole = write_and_read()
    monkeypatch.setattr("isthmus.run.writer.BLOCK", 2)
    monkeypatch.setattr("isthmus.run.columns.LINES", 2)
    assert write_and_read() == whole
    assert len(whole[2]) == 4
