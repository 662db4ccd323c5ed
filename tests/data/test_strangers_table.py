"""A stranger's table: holes, dates, 30 categories in one column, a class of 2 %."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from commands import Isthmus
from golden import check
from isthmus.streams import stream
from test_table import write

HEADER = ["patient", "clinic", "age", "crp", "ward", "admitted", "smoker", "sepsis"]
TRAIN = ("--set", "label=sepsis", "--set", "client=clinic", "--set", "missing=indicator")
FEW = (
    *("--method", "fedavg", "--rounds", "5", "--set", "epochs=2", "--set", "drop=patient"),
    "--workers",
    "1",
)


def write_patients(path: Path, rows: int = 750) -> Path:
    """Who has sepsis has a CRP that is far higher, if it was measured."""
    rng = stream(3, "strangers")
    lines: list[list[Any]] = []
    for i in range(rows):
        ill = i % 50 == 7
        crp = round(float(rng.gamma(9 if ill else 2, 20)), 1)
        lines.append(
            [
                *(f"P{i:05}", ("Aalen", "Bergen", "Cork")[i % 3]),
                *("" if i % 11 == 0 else 20 + int(rng.integers(70)), "NA" if i % 9 == 0 else crp),
                *(f"ward {int(rng.integers(30))}", str(np.datetime64("2023-01-01") + i % 600)),
                *(("yes", "no", "?")[int(rng.integers(3))], "yes" if ill else "no"),
            ]
        )
    return write(path, lines, HEADER)


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_one_command_trains_and_one_predicts(isthmus: Isthmus) -> None:
    write_patients(Path("patients.csv"))
    check(isthmus("run", "--data", "patients.csv", *TRAIN[:4], *FEW).mistake)
    run = ("run", "--data", "patients.csv", *TRAIN, *FEW)
    said = isthmus(*run, "--set", "balance=classes", "--out", "run")
    assert said.code == 0, said.err
    check(said.err)
    header = ["clinic", "extra", *HEADER[2:-1][::-1]]
    new = [
        ["Derry", 1, "no", "2026-02-01", "ward 3", 400, 60],
        ["Derry", 2, "", "2026-02-02", "ward 99", "", "NA"],
        ["Derry", 3, "yes", "", "?", 5, 60],
    ]
    write(Path("new.csv"), new, header)
    predict = ("predict", "run", "--client", "Bergen", "--data", "new.csv")
    said = isthmus(*predict)
    assert said.code == 0, said.err
    check(said.err)  # nobody's ward was missing in training
    chances = [float(row["p(yes)"]) for row in read("predictions.csv")]
    assert chances[0] > 0.5 > chances[2]
    write(Path("new.csv"), [[*row[:-2], row[-1]] for row in new], [*header[:-2], header[-1]])
    check(isthmus(*predict).mistake)


def test_balance_finds_the_rare_class(isthmus: Isthmus) -> None:
    """Without it nearly all are called healthy, which is right 98 times of 100."""
    write_patients(Path("patients.csv"))
    found = {}
    for balance in ("none", "classes"):
        run = ("run", "--data", "patients.csv", *TRAIN, *FEW, "--set", f"balance={balance}")
        assert isthmus(*run, "--out", balance).code == 0
        check(isthmus("show", balance).out)
        found[balance] = json.loads(isthmus("show", balance, "--json").out)["last"]
    assert found["none"]["personal_top1_test"] > 0.95
    assert (
        found["classes"]["personal_balanced_test"] > found["none"]["personal_balanced_test"] + 0.1
    )
