"""Predictions: the numbers that the run's own evaluation has, for new examples."""

import csv
from pathlib import Path

import numpy as np
import pytest

from commands import Isthmus
from golden import check
from isthmus.run import open as opened

RUN = ("run", "--method", "superfed-mm", "--rounds", "2", "--set", "epochs=1", "--out", "run")


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_predictions_are_those_that_were_tested(isthmus: Isthmus) -> None:
    """Client 3's test part as if it were new: as many are right as its record says."""
    assert isthmus(*RUN, "--data", "digits").code == 0
    with opened.open("run") as run:
        federation, model = run.setting.federation, run.client(3)
        rows = federation.splits[3].test
        np.savez("new.npz", x=federation.arrays.x[rows])
        expected, y = model.top1("test"), federation.arrays.y[rows]
    assert isthmus("predict", "run", "--client", "3", "--data", "new.npz").code == 0
    found = read("predictions.csv")
    right = [int(row["predicted"]) == label for row, label in zip(found, y.tolist(), strict=True)]
    assert np.mean(right) == pytest.approx(expected)
    assert sum(float(found[0][f"p({label})"]) for label in range(10)) == pytest.approx(1, abs=1e-5)


def test_a_table_is_read_as_the_runs_was(isthmus: Isthmus) -> None:
    rows = [
        f"{'ab'[n % 2]}lm,{n % 7},{('x', 'y', 'z')[n % 3]},{'no' if n % 7 < 3 else 'yes'}"
        for n in range(80)
    ]
    Path("all.csv").write_text("\n".join(["client,age,ward,label", *rows]) + "\n")
    assert isthmus(*RUN, "--data", "all.csv").code == 0
    Path("new.csv").write_text("ward,age,note\nz,1,a\nx,6,b\n")
    said = isthmus("predict", "run", "--client", "blm", "--data", "new.csv", "--out", "p.csv")
    assert said.code == 0, said.err
    assert set(read("p.csv")[0]) == {"row", "predicted", "p(no)", "p(yes)"}
    Path("new.csv").write_text("ward\nz\n")
    check(isthmus("predict", "run", "--client", "blm", "--data", "new.csv").mistake)
    Path("new.csv").write_text("ward,age\nq,1\n")
    said = isthmus("predict", "run", "--client", "blm", "--data", "new.csv")
    check(said.err)
    assert said.code == 0
    check(isthmus("predict", "run", "--client", "ulm", "--data", "new.csv").mistake)
    check(isthmus("predict", "run", "--data", "new.csv").mistake)
    assert "1 model in m" in isthmus("export", "run", "--client", "blm", "--out", "m").out
    check(isthmus("export", "run", "--client", "ulm", "--out", "m").mistake)
    crossed = isthmus("cross", "run", "--clients", "0,blm").out
    assert "blm" in crossed.splitlines()[1]
    check(isthmus("cross", "run", "--clients", "blm,blm").mistake)
    check(isthmus("predict", "run", "--client", "blm").mistake)
    check(isthmus("predict", "--data", "new.csv").mistake)
