"""Cells of tables: no spreadsheet computes them, and they come back as they were."""

import csv
from pathlib import Path

import numpy as np
import pytest

from isthmus.run.cells import format_lines, parse_lines
from isthmus.run.columns import read_arrays
from isthmus.run.schema import FEDERATION
from isthmus.run.writer import table_text

NAMES = [
    *("=1+1", '=HYPERLINK("http://a","b")', "+1+2", "-1-2", "@SUM(1)", "\t=1", "-", "="),
    *("'", "'=1", "''@", "'a'", "-5", "+5.5", "-inf", "a=1", "", "Oslo, N", 'the "sea"'),
    *("a\u2028b", "a\x0bb", "a\x1cb", "#1", "x" * 200_000),
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_cell_comes_back_as_it_was_and_is_no_formula(name: str) -> None:
    line = format_lines([["a", name, 3]])
    assert line.count("\n") == 1
    assert parse_lines(line.split("\n")[:-1]) == [["a", name, "3"]]
    (_, seen, _) = [name[:9]] * 3 if len(name) > 100_000 else next(csv.reader([line]))
    if seen.startswith(("=", "+", "-", "@", "\t")):
        assert np.isreal(float(seen))  # a number is no formula


def test_a_line_break_in_a_cell_is_a_space() -> None:
    assert format_lines([["a\r\nb", "c\rd", "e\n"]]) == "a b,c d,e\n"


def test_numbers_stay_numbers() -> None:
    assert format_lines([[-1, -0.5, "-0.5", None, True]]) == "-1,-0.5,-0.5,,True\n"


def test_names_of_clients_come_back_from_a_table(tmp_path: Path) -> None:
    rows = [(i, 3, 1, 1, (2, 3), name) for i, name in enumerate(NAMES)]
    path = tmp_path / "federation.csv"
    text = table_text("seed = 1", "federation", rows, ["kind", "evaluated"])
    path.write_text(text, "utf-8", newline="")
    read = read_arrays(path, FEDERATION)
    assert read["name"].tolist() == NAMES
    assert read["client"].tolist() == list(range(len(NAMES)))
