"""Columns of tables: holes, dates, booleans, categories that were never seen."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, Federation, IsthmusError
from isthmus.data.arrays import Arrays, Column
from isthmus.data.own.cells import parse_date
from isthmus.data.own.newcomer_files import read_inputs
from isthmus.data.own.tables import Table
from isthmus.run.build import read_federation
from test_table import FEW, write

HOLES = ["", " ", "NA", "N/A", "n/a", "NaN", "-nan", "null", "NULL", "?", "#N/A", "<NA>", "NaT"]


def load(path: Path, **options: Any) -> Arrays:
    return Table(str(path), **options).load(Path("nowhere"), seed=0)


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(IsthmusError) as error:
        load(path, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def columns_of(path: Path, cells: list[Any], **options: Any) -> tuple[Arrays, list[str]]:
    """A table whose column v has these cells, and what its inputs are called."""
    rows = [[cell, "ab"[i % 2], "xy"[i // 2 % 2]] for i, cell in enumerate(cells)]
    arrays = load(write(path, rows, ["v", "client", "label"]), **options)
    return arrays, [c.part or c.category or c.name for c in arrays.columns]


def federation(path: Path, **options: Any) -> Federation:
    """Clients a and b of 20 rows each: v counts from 0 in a and from 100 in b; one in 4 is NA."""
    rows = [
        ["NA" if i % 4 == 1 else i % 20 + 100 * (i // 20), "north" if i % 3 else "", c, "yn"[i % 2]]
        for i, c in enumerate("a" * 20 + "b" * 20)
    ]
    write(path, rows, ["v", "ward", "client", "label"])
    data = {"name": "table", "path": str(path), "missing": "mean", **options}
    return read_federation(Experiment(method="fedavg", data=data, seed=1), path.parent)


class TestHoles:
    @pytest.mark.parametrize("hole", HOLES)
    def test_every_spelling_is_one(self, tmp_path: Path, hole: str) -> None:
        arrays, _ = columns_of(tmp_path / "a.csv", [1, 2, hole, 4] * 2, missing="mean")
        assert np.isnan(arrays.x[:, 0]).tolist() == [False, False, True, False] * 2
        check(arrays.notes[0])
        check(refused(tmp_path / "a.csv"))
        check(refused(tmp_path / "a.csv"))

    def test_words_that_mean_something_are_none(self, tmp_path: Path) -> None:
        _, names = columns_of(tmp_path / "a.csv", ["none", "-", "Na", "0"] * 2, missing="mean")
        assert names == ["0", "-", "Na", "none"]

    @pytest.mark.parametrize("way", [True, "sums", "client"])
    @pytest.mark.parametrize("rule", ["mean", "median"])
    def test_they_are_filled_by_what_is_trained_on(
        self, way: Any, rule: str, tmp_path: Path
    ) -> None:
        data = federation(tmp_path / "a.csv", standardise=way, missing=rule)
        v = data.arrays.x[:, 0]
        for i in range(2):
            shares = [data.splits[i]] if way == "client" else data.splits
            known = np.concatenate([v[part.train] for part in shares])
            known = known[~np.isnan(known)]
            fill = known.mean() if rule == "mean" else np.median(known)
            expected = (np.nan_to_num(v, nan=fill) - known.mean()) / known.std()
            for name in ("train", "validation", "test"):
                rows = getattr(data.splits[i], name)
                given = data.split(i, name).x[:, 0].numpy()
                np.testing.assert_allclose(given, expected[rows], rtol=1e-5, atol=1e-6)
            column = data.columns(i)[0]
            assert (column.missing, column.fill) == (rule, pytest.approx(fill))

    def test_numbers_that_are_not_scaled_are_filled_too(self, tmp_path: Path) -> None:
        data = federation(tmp_path / "a.csv", standardise=False)
        v, fill = data.arrays.x[:, 0], data.columns(0)[0].fill
        expected = np.nan_to_num(v, nan=fill)[data.splits[1].test]
        np.testing.assert_allclose(data.split(1, "test").x[:, 0], expected, rtol=1e-6)

    def test_an_indicator_says_where_they_were(self, tmp_path: Path) -> None:
        data = federation(tmp_path / "a.csv", missing="indicator")
        assert [column.part for column in data.arrays.columns][:2] == ["", "missing"]
        lacks = data.split(0, "train").x[:, 1].tolist()
        assert lacks == [float(row % 4 == 1) for row in data.splits[0].train]
        _, names = columns_of(tmp_path / "b.csv", [1, 2, 3, 4] * 2, missing="indicator")
        assert names == ["v"]

    def test_a_word_that_is_missing_is_a_category(self, tmp_path: Path) -> None:
        data = federation(tmp_path / "a.csv")
        assert [column.category for column in data.arrays.columns[1:]] == ["north", "missing"]
        words = data.split(0, "train").x[:, 1:].tolist()
        assert words == [[row % 3 > 0, row % 3 == 0] for row in data.splits[0].train]

    def test_a_column_without_a_value_becomes_zero(self, tmp_path: Path) -> None:
        path = write(
            tmp_path / "a.csv",
            [[i, "" if i < 20 else 5, "ab"[i // 20], "yn"[i % 2]] for i in range(40)],
            ["v", "w", "client", "label"],
        )
        for way in ("client", "sums"):
            data = {"name": "table", "path": str(path), "missing": "mean", "standardise": way}
            made = read_federation(Experiment(method="fedavg", data=data), tmp_path)
            assert made.split(0, "test").x[:, 1].tolist() == [0] * 4

    def test_labels_and_clients_may_not_be_missing(self, tmp_path: Path) -> None:
        rows = [[1, "a", "x"], [2, "a", "y"], [3, "", "x"], [4, "b", "y"]]
        path = write(tmp_path / "a.csv", rows, ["v", "client", "label"])
        check(refused(path, missing="mean"))
        rows[2][1:] = ["b", "?"]
        write(path, rows, ["v", "client", "label"])
        check(refused(path, missing="mean"))

    def test_rules_move_the_digest(self, tmp_path: Path) -> None:
        names = {
            federation(tmp_path / "a.csv", missing=rule, standardise=way).digest()
            for rule in ("mean", "median")
            for way in ("sums", "client", False)
        }
        assert len(names) == 6


class TestDates:
    @pytest.mark.parametrize(
        ("written", "format"),
        [
            (["2024-03-01", "2023-12-31"], "iso"),
            (["2024/03/01", "2023/12/31"], "%Y/%m/%d"),
            (["01.03.2024", "31.12.2023"], "%d.%m.%Y"),
            (["1/3/2024", "31/12/2023"], "%d/%m/%Y"),
            (["3/1/2024", "12/31/2023"], "%m/%d/%Y"),
            (["1 Mar 2024", "31 Dec 2023"], "%d %b %Y"),
            (["March 1, 2024", "December 31, 2023"], "%B %d, %Y"),
        ],
    )
    def test_they_are_days_and_places_in_the_year_and_week(
        self, tmp_path: Path, written: list[str], format: str
    ) -> None:
        """1 March 2024 is day 19,783 since 1970, a Friday: four days after a Monday."""
        arrays, names = columns_of(tmp_path / "a.csv", written * 4, standardise=False)
        assert names == ["days", "sin year", "cos year", "sin week", "cos week"]
        assert arrays.columns[0].format == format
        assert arrays.x[:2, 0].tolist() == [19_783, 19_783 - 61]
        year = 2 * np.pi * (19_783 / 365.2425 % 1)
        week = 2 * np.pi * 4 / 7
        expected = [np.sin(year), np.cos(year), np.sin(week), np.cos(week)]
        np.testing.assert_allclose(arrays.x[0, 1:], expected, rtol=1e-5)

    def test_more_dates_than_there_may_be_categories(self, tmp_path: Path) -> None:
        days = [str(np.datetime64("2020-01-01") + i) for i in range(700)]
        arrays, names = columns_of(tmp_path / "a.csv", days, categories=10)
        assert names[0] == "days"
        np.testing.assert_allclose(np.diff(arrays.x[:, 0]), np.diff(arrays.x[:2, 0])[0], rtol=1e-3)
        arrays, _ = columns_of(tmp_path / "b.csv", [*days, "?"], missing="mean")
        assert np.isnan(arrays.x[-1, :5]).all()

    def test_times_have_a_place_in_the_day(self, tmp_path: Path) -> None:
        _, names = columns_of(tmp_path / "a.csv", ["2024-03-01 06:00", "2024-03-02T12:00Z"] * 4)
        assert names[5:] == ["sin day", "cos day"]
        assert parse_date("2024-03-01T02:00+02:00") == 19_783
        assert parse_date("2024-03-01 06:00") == 19_783.25
        assert parse_date("0001-01-01T00:00+12:00") == -719_162.5

    def test_a_day_that_may_be_a_month_is_refused(self, tmp_path: Path) -> None:
        with raises(IsthmusError):
            columns_of(tmp_path / "a.csv", ["1/2/2024", "3/4/2024"] * 4)
        _, names = columns_of(tmp_path / "a.csv", ["1/2/2024", "3/4/2024"] * 4, categorical="v")
        assert names == ["1/2/2024", "3/4/2024"]

    def test_a_word_among_them_makes_them_words(self, tmp_path: Path) -> None:
        _, names = columns_of(tmp_path / "a.csv", ["2024-03-01", "soon"] * 4)
        assert names == ["2024-03-01", "soon"]

    def test_parquet_has_them_as_such(self, tmp_path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        from datetime import date

        from pyarrow import parquet

        days = [date(2024, 3, 1), date(2023, 12, 31)] * 4
        columns = {"v": days, "client": ["a", "b"] * 4, "label": [0, 0, 1, 1] * 2}
        parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
        arrays = load(tmp_path / "a.parquet", standardise=False)
        assert arrays.x[:2, 0].tolist() == [19_783, 19_783 - 61]


def test_yes_and_no_are_one_input(tmp_path: Path) -> None:
    for one, two in (("yes", "no"), ("True", "FALSE"), ("t", "F"), ("y", "n")):
        arrays, names = columns_of(tmp_path / "a.csv", [one, two] * 4)
        assert names == ["boolean"]
        assert arrays.x[:2, 0].tolist() == [1, 0]
    _, names = columns_of(tmp_path / "a.csv", ["yes", "no", "unknown", "no"] * 2)
    assert names == ["no", "unknown", "yes"]
    _, names = columns_of(tmp_path / "a.csv", ["f"] * 8)  # all women, not all false
    assert names == ["f"]


class TestNewRows:
    """Rows that come later: as the run's were read, or one line that names the column."""

    @pytest.fixture
    def known(self, tmp_path: Path) -> Arrays:
        rows = [
            [i, ("north", "", "south")[i % 3], f"2024-01-{i + 1:02}", ("no", "yes")[i % 2], "x"]
            for i in range(30)
        ]
        header = ["v", "ward", "seen", "label", "client"]
        return load(write(tmp_path / "a.csv", rows, header), missing="mean", standardise="sums")

    def read(self, path: Path, rows: list[list[Any]], header: list[str], known: Arrays) -> Arrays:
        return read_inputs(write(path, rows, header), known)

    def test_order_and_other_columns_make_no_difference(
        self, known: Arrays, tmp_path: Path
    ) -> None:
        rows = [["2024-01-03", 7, "south", 2], ["2024-01-02", 8, "", 1]]
        new = self.read(tmp_path / "b.csv", rows, ["seen", "extra", "ward", "v"], known)
        assert np.array_equal(new.x, known.x[[2, 1]])
        assert new.notes == ()

    def test_a_word_that_was_never_seen_is_counted(self, known: Arrays, tmp_path: Path) -> None:
        rows = [[1, "west", "2024-01-01"], [1, "north", "2024-01-01"], [1, "east", "2024-01-01"]]
        new = self.read(tmp_path / "b.csv", rows, ["v", "ward", "seen"], known)
        assert new.x[:, 1:4].tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
        check(new.notes[0])

    @pytest.mark.parametrize(
        ("rows", "header"),
        [
            ([[1, "north"]], ["v", "ward"]),
            ([[1, "a", "soon"]], ["v", "ward", "seen"]),
            ([["x", "a", "2024-01-01"]], ["v", "ward", "seen"]),
            ([], ["v", "ward", "seen"]),
        ],
    )
    def test_what_does_not_fit_gets_one_line(
        self,
        rows: list[list[Any]],
        header: list[str],
        known: Arrays,
        tmp_path: Path,
    ) -> None:
        with raises(IsthmusError):
            self.read(tmp_path / "b.csv", rows, header, known)

    def test_a_run_that_refused_holes_refuses_them_later(self, tmp_path: Path) -> None:
        known, _ = columns_of(tmp_path / "a.csv", [1, 2, 3, 4] * 2)
        with raises(IsthmusError):
            self.read(tmp_path / "b.csv", [["NA"]], ["v"], known)


def test_a_card_says_how_holes_are_filled(isthmus: Isthmus) -> None:
    federation(Path("patients.csv"))
    data = ["--data", "patients.csv", "--set", "missing=indicator"]
    assert isthmus("run", *data, *FEW, "--out", "run").code == 0
    assert isthmus("export", "run", "--client", 1, "--out", "models").code == 0
    card = json.loads(Path("models/client-1.json").read_text())
    columns = [Column(**column) for column in card["columns"]]
    assert columns[0].missing == "mean"
    assert columns[0].fill == columns[0].mean > 10
    assert [(c.part, c.category) for c in columns[1:]] == [
        ("missing", None),
        ("", "north"),
        ("missing", "missing"),
    ]
