"""The schema of a table: written by a command, edited by a person, followed to the letter."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.data.arrays import Arrays
from isthmus.data.own.newcomer_files import read_newcomers
from isthmus.data.own.tables import Table
from test_table import FEW, write

HEADER = ["id", "site", "age", "code", "seen", "smoker", "flag", "outcome"]


def rows(count: int = 60) -> list[list[Any]]:
    """Code is one of 12, the first far more often; seen may be day or month first."""
    return [
        [
            *(i + 1, "ab"[i % 2], "" if i % 7 == 3 else i, f"c{i % 12 if i % 5 == 0 else 0}"),
            *(f"{i % 9 + 1}/{i % 11 + 1}/2024", ("yes", "no")[i % 3 == 0], i % 2),
            ("well", "ill")[i % 4 == 0],
        ]
        for i in range(count)
    ]


SCHEMA: dict[str, Any] = {
    "id": {"kind": "ignore"},
    "site": {"kind": "client"},
    "age": {"kind": "number", "missing": "indicator"},
    "code": {"kind": "category", "categories": ["c0", "c5"], "other": True},
    "seen": {"kind": "date", "format": "%m/%d/%Y", "cycles": ["week"]},
    "smoker": {"kind": "boolean"},
    "flag": {"kind": "boolean"},
    "outcome": {"kind": "label", "categories": ["well", "ill"]},
}


def load(path: Path, columns: Any = SCHEMA, **options: Any) -> Arrays:
    return Table(str(path), schema={"columns": columns}, **options).load(Path(), seed=0)


def test_a_schema_is_written_edited_and_followed(isthmus: Isthmus) -> None:
    write(Path("patients.csv"), rows(), HEADER)
    options = ["--set", "label=outcome", "--set", "client=site", "--set", "categories=4"]
    said = isthmus("data", "schema", "patients.csv", *options, "--out", "p.toml")
    assert said.code == 0, said.err
    check(said.out)
    text = Path("p.toml").read_text()
    written = tomllib.loads(text)["columns"]
    assert {name: each["kind"] for name, each in written.items()} == {
        **{name: each["kind"] for name, each in SCHEMA.items()},
        "flag": "number",
    }
    assert len(written["code"]["categories"]) == 4
    assert written["code"]["other"]
    for note in (
        "# counts the rows",
        "# 0 to 58; 9 of 60 cells have no value",
        "# the 4 most frequent of 12 words",
        "# choose one: format = '%d/%m/%Y' or '%m/%d/%Y'",
        "# 2 classes",
    ):
        assert note in text
    run = ["run", "--data", "patients.csv", "--set", "schema=p.toml", *FEW]
    check(isthmus(*run).mistake)
    Path("p.toml").write_text(
        text.replace('kind = "date"', 'kind = "date"\nformat = "%d/%m/%Y"\nmissing = "mean"')
    )
    check(isthmus(*run).mistake)
    said = isthmus(*run, "--set", "missing=mean", "--out", "run")
    assert said.code == 0, said.err
    check(said.err)
    Path("p.toml").unlink()  # the record has all of it
    assert isthmus("resume", "run").digest == said.digest
    check(isthmus("data", "schema", "patients.csv", "--out", "run").mistake)


def test_it_says_what_columns_are(tmp_path: Path) -> None:
    arrays = load(write(tmp_path / "a.csv", rows(), HEADER))
    inputs = [(c.name, c.part or c.category or "") for c in arrays.columns]
    assert inputs == [
        *(("age", ""), ("age", "missing"), ("code", "c0"), ("code", "c5"), ("code", "other")),
        *(("seen", "days"), ("seen", "sin week"), ("seen", "cos week")),
        *(("smoker", "boolean"), ("flag", "boolean")),
    ]
    assert arrays.labels == ("well", "ill")
    assert (
        arrays.x[9, 5] == 19_723 + 9
    )  # 1/10/2024: 10 January, not 1 October; 2024 began on 19,723
    assert arrays.x[:, 9].tolist() == [i % 2 for i in range(60)]


def test_newcomers_and_simulations_follow_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", rows(), HEADER)
    data = {"name": "table", "path": str(path), "schema": {"columns": SCHEMA}}
    run = federate(Experiment(method="fedavg", data=data, rounds=1, epochs=1))
    later = write(tmp_path / "b.csv", [row[1:] for row in rows(20)], HEADER[1:])
    arrived = read_newcomers(later, run.setting.federation, run.experiment.data)
    assert len(arrived) == 2
    known = run.setting.federation.arrays.x[:20]
    assert np.array_equal(arrived.arrays.x, known, equal_nan=True)


def changed(name: str, **changes: Any) -> dict[str, Any]:
    return {**SCHEMA, name: {**SCHEMA[name], **changes}}


MISTAKES: dict[str, Any] = {
    "an unknown kind": changed("age", kind="numbr"),
    "no kind": {**SCHEMA, "age": {}},
    "no table": {**SCHEMA, "age": "number"},
    "an unknown key": changed("age", mising="mean"),
    "another kind's key": changed("age", format="iso"),
    "an unknown rule": changed("age", missing="zero"),
    "categories that are none": changed("code", categories="c0"),
    "one category twice": changed("code", categories=["a", "a"]),
    "a format without a year": changed("seen", format="%d"),
    "an unknown cycle": changed("seen", cycles=["moon"]),
    "two labels": changed("site", kind="label"),
    "no label": {**SCHEMA, "outcome": {"kind": "ignore"}},
    "a column that is not there": {**SCHEMA, "bmi": {"kind": "number"}},
    "nothing to learn from": {"outcome": {"kind": "label"}, "age": {"kind": "ignore"}},
    "nothing": {},
    "dates of another format": changed("seen", format="%d.%m.%Y"),
    "booleans that are none": {**SCHEMA, "code": {"kind": "boolean"}},
    "a class that it does not list": changed("outcome", categories=["well"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_it_gets_one_line(tmp_path: Path, name: str) -> None:
    columns = MISTAKES[name]
    with raises(IsthmusError):
        load(write(tmp_path / "a.csv", rows(), HEADER), columns)


def test_files_that_are_no_schema_get_one_line(isthmus: Isthmus) -> None:
    write(Path("patients.csv"), rows(), HEADER)
    run = ["run", "--data", "patients.csv", "--set", "schema=p.toml", *FEW]
    check(isthmus(*run).mistake)
    Path("p.toml").write_text("[columns.age\n")
    check(isthmus(*run).mistake)
    Path("p.toml").write_text('[columns.outcome]\nkind = "label"\n[columns.age]\nkind = "number"\n')
    check(isthmus(*run, "--set", "drop=age").mistake)


def test_columns_that_it_lacks_are_left_out_with_a_note(tmp_path: Path) -> None:
    few = {name: SCHEMA[name] for name in ("site", "flag", "outcome")}
    check(*load(write(tmp_path / "a.csv", rows(), HEADER), few).notes)
