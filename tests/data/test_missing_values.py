"""Values that stand for none because somebody says so: -999, unknown."""

from pathlib import Path
from typing import Any

from commands import Isthmus
from golden import check, raises
from isthmus import IsthmusError
from isthmus.data.own.tables import Table
from isthmus.models.card import load

ROWS = [("41", "red"), ("-999", "blue"), ("-999.0", "unknown"), ("63", "red"), ("52", "blue")]


def write(path: Path, rows: Any = ROWS) -> Path:
    lines = [f"{age},{hue},{'ab'[i % 2]},{i % 3 % 2}" for i, (age, hue) in enumerate(rows * 8)]
    path.write_text("\n".join(["age,hue,client,label", *lines]) + "\n")
    return path


def test_named_values_are_holes_like_any_other(tmp_path: Path) -> None:
    given = {"missing": "indicator", "path": str(write(tmp_path / "named.csv"))}
    named = Table(missing_values="-999, unknown", **given).load(Path(), 0)
    blank = [("" if "999" in age else age, hue.replace("unknown", "")) for age, hue in ROWS]
    given["path"] = str(write(tmp_path / "blank.csv", blank))
    empty = Table(**given).load(Path(), 0)
    assert (named.x[named.x == named.x] == empty.x[empty.x == empty.x]).all()
    assert named.notes == empty.notes
    assert [c._replace(missing_values=()) for c in named.columns] == [*empty.columns]
    assert named.columns[0].missing_values == ("-999", "unknown")


def test_a_schema_names_them_for_a_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [("-999", "0"), ("5", "-999"), ("6", "1")])
    kinds = {"hue": {"kind": "number"}, "label": {"kind": "label"}, "client": {"kind": "client"}}
    age = {"kind": "number", "missing": "mean", "missing_values": [-999]}
    schema: dict[str, Any] = {"columns": kinds | {"age": age}}
    arrays = Table(path=str(path), schema=schema).load(Path(), 0)
    assert {column.name: column.missing_values for column in arrays.columns} == {
        "age": ("-999",),
        "hue": (),
    }
    assert arrays.x[1, [c.name for c in arrays.columns].index("hue")] == -999
    schema["columns"]["age"]["missing_values"] = -999
    with raises(IsthmusError):
        Table(path=str(path), schema=schema).load(Path(), 0)


def test_rows_that_come_later_are_read_alike(isthmus: Isthmus) -> None:
    write(Path("a.csv"))
    few = ["--method", "fedavg", "--rounds", "1", "--set", "epochs=1", "--out", "run"]
    named = ["--set", "missing=mean", "--set", "missing_values=-999,unknown"]
    assert isthmus("run", "--data", "a.csv", *named, *few).code == 0
    Path("new.csv").write_text("hue,age\nunknown,-999\nred,40\n")
    asked = isthmus("predict", "run", "--client", "a", "--data", "new.csv")
    assert "note" not in asked.err
    Path("blank.csv").write_text("hue,age\n,\nred,40\n")
    again = isthmus("predict", "run", "--client", "a", "--data", "blank.csv", "--out", "b.csv")
    assert (asked.code, again.code) == (0, 0)
    assert Path("predictions.csv").read_text() == Path("b.csv").read_text()
    assert isthmus("export", "run", "--client", "0", "--out", "models").code == 0
    predict = load(Path("models/client-0.json"))
    said, left = (predict([{"hue": h, "age": a}]) for h, a in (("unknown", -999), (None, None)))
    assert (said == left).all()
    written = isthmus("data", "schema", "a.csv", *named).out
    assert written.count('missing_values = [\n    "-999",\n    "unknown",\n]') == 2
    Path("a.toml").write_text(written)
    assert isthmus("run", "--data", "a.csv", "--set", "schema=a.toml", *few[:-1], "b").code == 0


def test_what_is_named_and_not_filled_gets_one_line(isthmus: Isthmus) -> None:
    write(Path("a.csv"))
    check(isthmus("run", "--data", "a.csv", "--set", "missing_values=-999").mistake)
