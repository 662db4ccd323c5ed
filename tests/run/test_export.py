"""Models that leave: programs that need no isthmus, and tables that become probabilities."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import isthmus
from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.models import portable
from isthmus.models.card import load
from isthmus.run.export import export

QUICK: dict[str, Any] = {"rounds": 1, "epochs": 1, "clients_per_round": 4, "seed": 1}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers far from zero, some of them missing, and words."""
    rng = np.random.default_rng(0)
    rows = ["client,age,when,ward,label"]
    for n in range(160):
        age = "" if n % 9 == 4 else f"{rng.normal(40, 9):.2f}"
        label = "yes" if rng.random() < 0.5 else "no"
        rows.append(f"{'abcd'[n % 4]}lm,{age},{1.7e9 + 1000 * n:.0f},{'xyz'[n % 3]},{label}")
    path = tmp_path_factory.mktemp("table") / "all.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def run_of(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("runs")
    own = {"name": "table", "path": str(table), "missing": "mean"}
    kinds: dict[str, dict[str, Any]] = {
        "table": {"data": own, "method": "superfed-mm"},
        "each": {"data": own | {"standardise": "client"}, "method": "fedavg"},
        "digits": {"data": "digits", "method": "fedsimsup"},
    }

    def run_of(kind: str) -> Path:
        if not (folder / kind).exists():
            federate(Experiment(**(QUICK | kinds[kind])), out=folder / kind, workers=1)
        return folder / kind

    return run_of


def probabilities(run: Path, i: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a run's own model gives for its client's test part, and the rows of that."""
    with isthmus.open(run) as opened:
        x = opened.setting.federation.split(i, "test").x
        rows = opened.setting.federation.splits[i].test
        return np.asarray(torch.softmax(opened.client(i)(x), 1)), rows


@pytest.mark.parametrize("kind", ["table", "each"])
@pytest.mark.parametrize("form", ["safetensors", "torch"])
def test_a_table_becomes_the_probabilities_that_the_run_gives(
    kind: str, form: str, table: Path, run_of: Callable[[str], Path], tmp_path: Path
) -> None:
    run = run_of(kind)
    expected, rows = probabilities(run, 1)
    with isthmus.open(run) as opened:
        (card,) = export(opened, tmp_path, [1], form=form)
    lines = [line.split(",") for line in table.read_text().splitlines()]
    columns = {name: [line[k] for line in lines[1:]] for k, name in enumerate(lines[0])}
    wanted = {name: [cells[row] for row in rows] for name, cells in columns.items()}
    predict = load(card)
    assert predict(wanted) == pytest.approx(expected, abs=1e-5)
    assert predict.labels == ("no", "yes")
    as_rows = [dict(zip(wanted, row, strict=True)) for row in zip(*wanted.values(), strict=True)]
    assert load(tmp_path)(as_rows) == pytest.approx(expected, abs=1e-5)
    assert json.loads(card.read_text())["inputs"][-3:] == ["ward=x", "ward=y", "ward=z"]


def test_a_program_needs_nothing_but_torch_and_takes_any_number_of_inputs(
    run_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """FedSimSup's two networks and the division of pixels are all in it."""
    run = run_of("digits")
    expected, rows = probabilities(run, 2)
    with isthmus.open(run) as opened:
        (card,) = export(opened, tmp_path, [2], form="torch")
        x = opened.setting.federation.arrays.x[rows]
    program = torch.export.load(tmp_path / "client-2.pt2").module()
    given = torch.as_tensor(x).float()
    assert program(given).detach().numpy() == pytest.approx(expected, abs=1e-5)
    assert program(given[:1]).detach().numpy() == pytest.approx(expected[:1], abs=1e-5)
    told = json.loads(card.read_text())
    assert told["checked"]["largest_difference"] <= told["checked"]["tolerance"]
    assert told["input"] == {"name": "x", "type": "float32", "shape": ["batch", *x.shape[1:]]}


def test_onnx_gives_the_same(run_of: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    run = run_of("each")
    expected, rows = probabilities(run, 1)
    with isthmus.open(run) as opened:
        (card,) = export(opened, tmp_path, [1], form="onnx")
        raw = opened.setting.federation.arrays.x[rows]
    session = onnxruntime.InferenceSession(tmp_path / "client-1.onnx")
    (given,) = session.get_inputs()
    assert (given.name, given.type) == ("x", "tensor(double)")
    assert session.run(None, {"x": raw})[0] == pytest.approx(expected, abs=1e-5)
    assert load(card)(raw[:1]) == pytest.approx(expected[:1], abs=1e-5)


def test_a_file_that_gives_other_probabilities_is_not_written(
    run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable, "TOLERANCE", -1.0)
    with isthmus.open(run_of("table")) as opened, raises(IsthmusError):
        list(export(opened, tmp_path, [1], form="torch"))
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_had_is_one_clear_line(
    run_of: Callable[[str], Path], tmp_path: Path, isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("table")
    words = ["export", run, "--client", 1, "--out", tmp_path, "--format"]
    check(isthmus(*words, "onx").mistake)
    monkeypatch.setattr(portable, "find_spec", lambda name: None)
    check(isthmus(*words, "onnx").mistake)
    assert isthmus(*words, "safetensors").code == 0
    predict = load(tmp_path)
    with raises(IsthmusError):
        predict({"age": [1], "ward": ["x"]})
    with raises(IsthmusError):
        predict({"age": ["old"], "when": [1], "ward": ["x"]})
    with raises(IsthmusError):
        predict({"age": [1, 2], "when": [1], "ward": ["x"]})
    with raises(IsthmusError):
        predict(np.zeros((2, 3)))
    with raises(IsthmusError):
        load(run.parent)
