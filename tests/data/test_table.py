"""Tables of one's own: what their columns become, whose their rows are, and what is refused."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.data.arrays import Arrays, Column
from isthmus.data.own import newcomer_files, reader
from isthmus.data.own.tables import Table
from isthmus.streams import stream
from test_own_files import without

HEADER = ["age", "sex", "hospital", "outcome"]
ROWS = [
    [60, "f", "Cork", "better"],
    [40, "m", "Aalen", "worse"],
    [50, "f", "Cork", "worse"],
    [50, "m", "Aalen", "better"],
]
OWN = {"label": "outcome", "client": "hospital"}
SET = ["--set", "label=outcome", "--set", "client=hospital"]
FEW = ["--method", "superfed-mm", "--rounds", "2", "--set", "epochs=1"]


def write(path: Path, rows: Sequence[Sequence[Any]], header: Sequence[str] = HEADER) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def many(
    rows: int = 120, hospitals: Sequence[str] = ("Aalen", "Bergen", "Cork")
) -> list[list[Any]]:
    """Patients whose outcome follows from the dose, the other way round in Cork."""
    rng, result = stream(5, "patients"), []
    for i in range(rows):
        dose, where = float(rng.normal()), hospitals[i % len(hospitals)]
        better = (dose > 0) == (where != "Cork")
        result.append([round(dose, 3), "fm"[i % 2], where, "better" if better else "worse"])
    return result


def load(path: Path, **options: Any) -> Arrays:
    return Table(str(path), **(OWN | options)).load(Path("nowhere"), seed=0)


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(IsthmusError) as error:
        load(path, **options)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


def test_numbers_are_standardised_and_words_are_ones_and_zeros(tmp_path: Path) -> None:
    """Ages 60, 40, 50, 50: mean 50, variance (100 + 100) / 4 = 50; sex is f, m, f, m."""
    arrays = load(write(tmp_path / "a.csv", ROWS))
    np.testing.assert_allclose(arrays.x[:, 0], np.array([10, -10, 0, 0]) / 50**0.5, rtol=1e-6)
    assert arrays.x[:, 1:].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert arrays.x.dtype == np.float32
    assert arrays.columns == (
        Column("age", None, 50.0, 50**0.5),
        Column("sex", "f"),
        Column("sex", "m"),
    )
    assert (arrays.labels, arrays.y.tolist()) == (("better", "worse"), [0, 1, 1, 0])
    assert (arrays.names, arrays.owner.tolist()) == (("Aalen", "Cork"), [1, 0, 1, 0])
    assert (arrays.classes, len(arrays.test_x), arrays.split) == (2, 0, None)


def test_numbers_stay_as_they_are_if_asked(tmp_path: Path) -> None:
    arrays = load(write(tmp_path / "a.csv", ROWS), standardise=False)
    assert arrays.x[:, 0].tolist() == [60, 40, 50, 50]


def test_large_numbers_keep_their_differences(tmp_path: Path) -> None:
    """Seconds since 1970 are 128 apart in float32; here they are scaled before they become that."""
    rows = [[1_700_000_000 + i, "f", "Cork", "bw"[i % 2]] for i in range(4)]
    x = load(write(tmp_path / "a.csv", rows)).x[:, 0]
    np.testing.assert_allclose(np.diff(x), 1 / 1.25**0.5, rtol=1e-6)  # variance of 0, 1, 2, 3


def test_a_column_of_one_value_becomes_zero(tmp_path: Path) -> None:
    rows = [[7, "f", "Cork", label] for label in "abab"]
    assert load(write(tmp_path / "a.csv", rows)).x[:, 0].tolist() == [0] * 4


def test_test_rows_do_not_count_for_the_scale(tmp_path: Path) -> None:
    """Without the row of 1000: mean 50, variance 50, as above."""
    parts = ["train", "Train", "validation", "train", "test"]
    rows = [
        [*row, part] for row, part in zip([*ROWS, [1000, "f", "Cork", "worse"]], parts, strict=True)
    ]
    arrays = load(write(tmp_path / "a.csv", rows, [*HEADER, "part"]), split="part")
    assert arrays.split.tolist() == [0, 0, 1, 0, 2]
    assert arrays.columns[0] == Column("age", None, 50.0, 50**0.5)
    rows[3][-1] = "tset"
    write(tmp_path / "a.csv", rows, [*HEADER, "part"])
    with raises(IsthmusError):
        load(tmp_path / "a.csv", split="part")


def test_columns_are_chosen_dropped_and_taken_as_categories(tmp_path: Path) -> None:
    rows = [[*row, i, 100 + i % 2] for i, row in enumerate(ROWS)]
    path = write(tmp_path / "a.csv", rows, [*HEADER, "id", "ward"])

    def names(**options: Any) -> list[str]:
        columns = load(path, **options).columns
        return [c.name if c.category is None else f"{c.name}={c.category}" for c in columns]

    assert names(drop="id, sex") == ["age", "ward"]
    assert names(columns="ward,age") == ["ward", "age"]
    assert names(columns="ward", categorical="ward") == ["ward=100", "ward=101"]
    check(refused(path, drop="idd"))
    check(refused(path, columns="age", drop="age"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path: Path, delimiter: str) -> None:
    lines = [delimiter.join(map(str, row)) for row in [HEADER, *ROWS]]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n\n", encoding="utf-8-sig")
    arrays = load(tmp_path / "a.csv")
    assert arrays.x.shape == (4, 3)
    assert load(tmp_path / "a.csv", delimiter=delimiter).names == arrays.names


def test_quotes_spaces_and_other_letters_are_kept(tmp_path: Path) -> None:
    rows = [[1, 'a "b", c', "Århus", "ja"], [2, "d\ne", "Århus", "nej"]] * 2
    arrays = load(write(tmp_path / "a.csv", rows))
    assert [column.category for column in arrays.columns[1:]] == ['a "b", c', "d\ne"]
    assert arrays.names == ("Århus",)
    (tmp_path / "b.csv").write_text("label, client, v\n1, 2, 3\n0, 2, 4\n")
    assert load(tmp_path / "b.csv", label="label", client="client").columns[0].name == "v"


def test_labels_and_clients_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    rows = [
        [i, "f", client, label]
        for i, (client, label) in enumerate(zip([10, 9] * 4, [2, 10, 1, 2] * 2, strict=True))
    ]
    arrays = load(write(tmp_path / "a.csv", rows))
    assert (arrays.names, arrays.labels) == (("9", "10"), ("1", "2", "10"))


def test_one_name_in_several_spellings_is_one_and_that_is_said(tmp_path: Path) -> None:
    """Codes with zeros before them, and numbers too long for a float, stay what they are."""
    clients = ["Oslo", "Oslo ", "7", "007", "7.0", "9007199254740993", "9007199254740992"]
    labels = ["yes", "yes ", "1", "1.0", "2.50", "2.5", "2.51"]
    rows = [[i, "f", c, k] for i, (c, k) in enumerate(zip(clients, labels, strict=True))] * 2
    arrays = load(write(tmp_path / "a.csv", rows))
    assert arrays.labels == ("1", "2.5", "2.51", "yes")
    assert arrays.y[:7].tolist() == [3, 3, 0, 0, 1, 1, 2]
    assert arrays.names == ("007", "7", "9007199254740992", "9007199254740993", "Oslo")
    assert arrays.owner[:7].tolist() == [4, 4, 1, 0, 1, 3, 2]
    check(*arrays.notes)
    rows = [[i, "f", "Bergen", label] for i, label in enumerate(["1.00", " yes", "2.5"])]
    like = Table(**OWN).like(write(tmp_path / "b.csv", rows), arrays)
    assert (like.y.tolist(), like.labels) == ([0, 3, 1], arrays.labels)


def test_spaces_around_the_only_spelling_are_no_note(tmp_path: Path) -> None:
    rows = [[i, "f", "Oslo ", ["yes ", "1.0 "][i % 2]] for i in range(4)]
    arrays = load(write(tmp_path / "a.csv", rows))
    assert (arrays.labels, arrays.names, arrays.notes) == (("1.0", "yes"), ("Oslo",), ())


def test_blocks_of_rows_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv", many(100))
    whole = load(path)
    monkeypatch.setattr(reader, "BLOCK", 7)
    again = load(path)
    assert np.array_equal(whole.x, again.x)
    assert np.array_equal(whole.y, again.y)
    assert np.array_equal(whole.owner, again.owner)
    write(path, [*many(100)[:-1], ["x", "f", "Cork", "worse"]])
    check(refused(path))


def test_quotes_and_ends_of_lines_make_no_difference(tmp_path: Path) -> None:
    """Some lines may have quotes, or an end of their own: those before and after are plain."""
    path = write(tmp_path / "a.csv", many(700))
    whole, lines = load(path), path.read_text().splitlines()
    quoted = [",".join(f'"{cell}"' for cell in line.split(",")) for line in lines]
    spaced = [line.replace(",", ", ") for line in lines]
    for others in (
        "\n".join(quoted),
        "\r".join(lines),
        "\n".join(lines[:300] + quoted[300:301] + lines[301:]),
        "\n".join(lines[:300]) + "\n\n" + "\r\n".join(lines[300:]),
        "\n".join(lines[:400] + spaced[400:]) + "\n\n",
    ):
        path.write_bytes(others.encode())
        again = load(path)
        assert np.array_equal(whole.x, again.x)
        assert np.array_equal(whole.owner, again.owner)
        assert (whole.columns, whole.labels) == (again.columns, again.labels)
    path.write_text("\n".join([*lines[:600], "1,f,Cork", "1,f,Cork,worse,1", *lines[600:]]))
    check(refused(path))
    path.write_bytes("\n".join(lines[:600]).encode() + b"\n\xff,")
    check(refused(path))


def test_names_of_columns_have_defaults(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", [[i, "ab"[i % 2], i % 3] for i in range(9)], ["v", "y", "client"]
    )
    arrays = Table(str(path)).load(Path(), seed=0)
    assert (arrays.labels, arrays.names) == (("a", "b"), ("0", "1", "2"))
    arrays = Table(str(path), client="").load(Path(), seed=0)
    assert arrays.owner is None
    assert [column.name for column in arrays.columns] == ["v", "client"]


MISTAKES: dict[str, str] = {
    "nothing": "",
    "a header alone": "age,hospital,outcome\n",
    "no column of labels": "age,hospital\n1,a\n",
    "no column of clients": "age,outcome\n1,a\n",
    "nothing to learn from": "hospital,outcome\na,b\nc,d\n",
    "two of one name": "age,age,hospital,outcome\n1,2,a,b\n",
    "an odd name": '"a\nge",hospital,outcome\n1,a,b\n',
    "a short line": "age,hospital,outcome\n1,a,b\n2,a\n",
    "a long line": "age,hospital,outcome\n1,a,b,c\n",
    "an open quote": 'age,hospital,outcome\n1,"a,b\n2,a,b\n',
    "an empty number": "age,hospital,outcome\n1,a,b\n,a,c\n",
    "nan": "age,hospital,outcome\n1,a,b\nnan,a,c\n",
    "infinity": "age,hospital,outcome\n1,a,b\n-inf,a,c\n",
    "a word among numbers": "age,hospital,outcome\n1,a,b\n2,a,c\nNA,a,c\n",
    "an empty word": "sex,hospital,outcome\nf,a,b\n ,a,c\n",
    "an empty label": "age,hospital,outcome\n1,a,b\n2,a,\n",
    "an empty client": "age,hospital,outcome\n1,a,b\n2,,c\n",
    "a label that is nan": "age,hospital,outcome\n1,a,b\n2,a,c\n2,a, NaN \n",
    "a label that is NA": "age,hospital,outcome\n1,a,b\n2,a,NA\n",
    "a client that is nan": "age,hospital,outcome\n1,a,b\n2,nan,c\n",
    "one class in two spellings": "age,hospital,outcome\n1,a,1\n2,a,1.0\n",
    "one class": "age,hospital,outcome\n1,a,b\n2,a,b\n",
    "a number too large": "age,hospital,outcome\n1e300,a,b\n-1e300,a,c\n1e308,a,b\n",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_table_that_is_none_gets_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").write_text(MISTAKES[name])
    check(refused(tmp_path / "a.csv"))


def test_other_files_called_csv_get_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for content in (b"\xff\xfe\x00a", b"PK\x03\x04\x14\xe9", b"outcome,hospital\n\xe9,a\n"):
        path.write_bytes(content)
        check(refused(path))
    path.write_text("age,hospital,outcome\n1,a," + "b" * 200_000 + "\n")
    check(refused(path))


def test_too_many_words_or_classes_are_refused(tmp_path: Path) -> None:
    rows = [[i, f"name {i}", "Cork", "bw"[i % 2]] for i in range(60)]
    path = write(tmp_path / "a.csv", rows)
    check(refused(path))
    assert load(path, categories=60).x.shape == (60, 61)
    check(refused(write(path, [[i, "f", "Cork", i / 7] for i in range(60)])))
    check(refused(write(path, [[i, "f", "Cork", i % 25 + 0.5] for i in range(600)])))


def test_a_table_that_does_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.data.own.reader.free_memory", lambda: 100)
    check(refused(write(tmp_path / "a.csv", ROWS)))


def test_the_time_to_read_grows_with_the_columns_and_not_with_their_square(tmp_path: Path) -> None:
    """A search for each among all would take minutes."""
    header = [f"c{i}" for i in range(30_000)]
    rows = [[*(i % 7 for i in range(30_000)), "Cork", label] for label in "abab"]
    path = write(tmp_path / "a.csv", rows, [*header, "hospital", "outcome"])
    columns = load(path, drop="c1", categorical=",".join(header[:3000])).columns
    assert [column.name for column in columns] == [header[0], *header[2:]]


def test_damaged_tables_are_read_or_get_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", many(20))
    whole, rng = path.read_bytes(), stream(1, "damage")
    for i in range(60):
        damaged = bytearray(whole[: rng.integers(len(whole))] if i % 2 else whole)
        for place in rng.integers(max(len(damaged), 1), size=2 if damaged else 0):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            read = len(load(path).y)
        except IsthmusError as error:
            read = 1 - str(error).count("\n")
        assert read > 0


class TestParquet:
    def test_a_missing_pyarrow_is_told_with_the_command(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.parquet").write_bytes(b"PAR1")
        without(monkeypatch, "pyarrow")
        check(refused(tmp_path / "a.parquet"))

    def test_it_says_the_same_as_the_csv_file(self, tmp_path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = dict(zip(HEADER, map(list, zip(*many(30), strict=True)), strict=True))
        parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
        one, two = load(tmp_path / "a.parquet"), load(write(tmp_path / "a.csv", many(30)))
        assert np.array_equal(one.x, two.x)
        assert np.array_equal(one.owner, two.owner)
        assert (one.columns, one.labels, one.names) == (two.columns, two.labels, two.names)

    def test_what_is_no_table_gets_one_line(self, tmp_path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        path = tmp_path / "a.parquet"
        columns = {"v": [[1], [2]], "hospital": ["a", "b"], "outcome": [0, 1]}
        parquet.write_table(pyarrow.table(columns), path)
        check(refused(path))
        parquet.write_table(pyarrow.table(columns | {"v": [1.0, None]}), path)
        check(refused(path))
        path.write_bytes(path.read_bytes()[:-9])
        check(refused(path))


class TestCommands:
    def test_a_strangers_table_trains_in_one_command(self, isthmus: Isthmus) -> None:
        write(Path("patients.csv"), many())
        said = isthmus("run", "--data", "patients.csv", *SET, *FEW)
        assert said.code == 0, said.err
        assert "records: runs/patients-superfed-mm-0" in said.out
        rows = Path("runs/patients-superfed-mm-0/federation.csv").read_text().splitlines()
        assert [row.split(",")[-1] for row in rows[-3:]] == ["Aalen", "Bergen", "Cork"]

    def test_without_settings_the_line_says_which_to_add(self, isthmus: Isthmus) -> None:
        write(Path("patients.csv"), many())
        check(isthmus("run", "--data", "patients.csv").mistake)
        check(isthmus("run", "--data", "patients.csv", *SET[:2]).mistake)
        check(isthmus("run", "--data", "patients.csv", *SET[:2], "--set", 'client=""').mistake)
        divided = [*SET[:2], "--set", 'client=""', "--set", "partition=iid", "--set", "clients=6"]
        said = isthmus("run", "--data", "patients.csv", *divided, *FEW)
        assert said.code == 0, said.err
        check(isthmus("run", "--data", "patient.csv").mistake)

    def test_a_run_goes_on_from_anywhere_and_notices_a_changed_file(
        self, isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(Path("patients.csv"), many())
        home = Path.cwd()
        first = isthmus("run", "--data", "patients.csv", *SET, *FEW, "--out", "run")
        Path("elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        assert isthmus("resume", home / "run").digest == first.digest
        again = isthmus("run", home / "run" / "experiment.toml", "--out", "again")
        assert again.digest == first.digest
        (home / "patients.csv").rename("patients.csv")
        check(isthmus("resume", home / "run").mistake)
        assert isthmus("resume", home / "run", "--data-root", ".").digest == first.digest
        write(Path("patients.csv"), many()[1:])
        check(isthmus("resume", home / "run", "--data-root", ".").mistake)

    def test_a_card_says_what_the_inputs_are(self, isthmus: Isthmus) -> None:
        write(Path("patients.csv"), many())
        isthmus("run", "--data", "patients.csv", *SET, *FEW, "--out", "run")
        assert isthmus("export", "run", "--client", 2, "--out", "models").code == 0
        card = json.loads(Path("models/client-2.json").read_text())
        assert (card["name"], card["labels"]) == ("Cork", ["better", "worse"])
        assert [column["name"] for column in card["columns"]] == ["age", "sex", "sex"]

    def test_newcomers_come_in_a_table_like_the_runs(self, isthmus: Isthmus) -> None:
        write(Path("patients.csv"), many())
        isthmus("run", "--data", "patients.csv", *SET, *FEW, "--out", "run")
        write(Path("new.csv"), many(40, ("Derry", "Evora")))
        said = isthmus("adapt", "run", "--data", "new.csv", "--shots", 5)
        assert said.code == 0, said.err
        check(said.out)
        for rows, header in (
            ([["f", "Derry", "worse"]], HEADER[1:]),
            ([[1, "f", "Derry", "equal"]], HEADER),
            ([["", "f", "Derry", "worse"]], HEADER),
        ):
            write(Path("new.csv"), rows, header)
            check(isthmus("adapt", "run", "--data", "new.csv").mistake)


def test_newcomers_are_scaled_as_the_run_was(tmp_path: Path) -> None:
    """The same rows give the same inputs, alone or among others; a column more does not matter."""
    path = write(tmp_path / "a.csv", many())
    data = {"name": "table", "path": str(path), **OWN}
    run = federate(Experiment(method="fedavg", data=data, rounds=1, epochs=1))
    federation = run.setting.federation
    rows = [[7, *row] for row in many() if row[2] == "Cork"]
    few = write(tmp_path / "b.csv", rows, ["id", *HEADER])
    arrived = newcomer_files.read_newcomers(few, federation, run.experiment.data)
    assert arrived.names == ("Cork",)
    assert np.array_equal(arrived.arrays.x, federation.arrays.x[federation.arrays.owner == 2])
    digits = federate(Experiment(method="fedavg", rounds=1, epochs=1)).setting.federation
    with raises(IsthmusError):
        newcomer_files.read_newcomers(few, digits)
