"""Records: complete, readable by anything that reads CSV, on disk as soon as a round is done."""

import csv
import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from golden import raises
from isthmus import Experiment, IsthmusError, Run, federate
from isthmus.metrics.metric import METRICS
from isthmus.run.loop import resume
from isthmus.run.record import read as read_record

TABLES = ["federation.csv", "rounds.csv", "clients.csv", "reliability.csv", "notes.csv"]
SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "samples": 120},
    "clients": 4,
    "clients_per_round": 2,
    "epochs": 1,
    "lr": 0.1,
    "rounds": 4,
    "eval_every": 2,
    "model": {"name": "mlp", "hidden": 8},
    "seed": 3,
}


class Kept(NamedTuple):
    run: Run
    path: Path


def read(path: Path) -> tuple[str, list[dict[str, str]]]:
    """Reads a table without the help of isthmus: its head, and its rows."""
    lines = path.read_text().splitlines()
    head = [line[2:] for line in lines if line.startswith("#")]
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return "\n".join(head) + "\n", list(rows)


def kept(path: Path, **changes: Any) -> Kept:
    return Kept(federate(Experiment(**(SETTINGS | changes)), out=path), path)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Four rounds of SuPerFed, of which the last two mix."""
    method = {"name": "superfed-mm", "start": 0.5}
    return kept(tmp_path_factory.mktemp("store") / "mixed", method=method)


def rows_of(kept: Kept, **wanted: str) -> list[dict[str, str]]:
    rows = read(kept.path / "clients.csv")[1]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


@pytest.mark.parametrize("table", TABLES)
def test_every_table_carries_its_experiment(mixed: Kept, table: str) -> None:
    head, _ = read(mixed.path / table)
    text = (mixed.path / "experiment.toml").read_text()
    assert tomllib.loads(head) == tomllib.loads(text)
    assert Experiment.load(mixed.path / "experiment.toml") == mixed.run.experiment


def test_the_scores_have_a_row_for_every_client_model_and_split(mixed: Kept) -> None:
    """Rounds 2 and 4 are evaluated. Each of 4 clients has 11 points on its path, one personal and
    one shared model, on 2 splits, 104 rows; the server has one more."""
    rows = read(mixed.path / "clients.csv")[1]
    expected = {
        (round, client, model, split): count
        for round in "24"
        for client in "0123"
        for model, count in (("path", 11), ("personal", 1), ("shared", 1))
        for split in ("validation", "test")
    }
    expected |= {(round, "server", "shared", "test"): 1 for round in "24"}
    found = Counter((r["round"], r["client"], r["model"], r["split"]) for r in rows)
    assert found == expected
    assert len(rows) == 2 * (104 + 1)


def test_a_path_says_where_its_points_lie(mixed: Kept) -> None:
    """Lambda is 0, 0.1, ..., 1 for a client that mixed and 0 for one that did not."""
    grid = ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]
    own = federate(mixed.run.experiment).progress.own  # the same run, kept in memory
    took_part = {i for i in range(4) if i in own and own[i].mixed}
    assert 0 < len(took_part) < 4, "both kinds occur with this seed"
    for i in range(4):
        for split in ("validation", "test"):
            path = rows_of(mixed, round="4", client=str(i), model="path", split=split)
            assert [row["at"] for row in path] == (grid if i in took_part else ["0"] * 11)
            early = rows_of(mixed, round="2", client=str(i), model="path", split=split)
            assert [row["at"] for row in early] == ["0"] * 11
        (personal,) = rows_of(mixed, round="4", client=str(i), model="personal", split="test")
        assert personal["at"] in (grid if i in took_part else ["0"])
    assert {row["at"] for row in rows_of(mixed, model="shared")} == {""}


def test_lambda_zero_is_the_shared_model(mixed: Kept) -> None:
    figures = ("n", "top1", "top5", "loss", "brier", "ece", "mce")
    for row in rows_of(mixed, model="path", at="0", round="4"):
        (shared,) = rows_of(
            mixed, model="shared", round="4", client=row["client"], split=row["split"]
        )
        assert [row[name] for name in figures] == [shared[name] for name in figures]


def test_the_server_has_its_own_row(mixed: Kept) -> None:
    """A fifth of 120 samples: 24; figures are written with eight digits."""
    (row,) = rows_of(mixed, client="server", round="4")
    assert (row["model"], row["at"], row["split"], row["n"]) == ("shared", "", "test", "24")
    found = mixed.run.evaluation.server
    assert found is not None
    assert float(row["top1"]) == pytest.approx(float(found.top1), rel=1e-7)
    assert float(row["loss"]) == pytest.approx(float(found.loss), rel=1e-7)


def test_a_run_in_hand_is_the_run_that_is_read(mixed: Kept) -> None:
    here, there = mixed.run.record(mixed.path), read_record(mixed.path)
    for metric in METRICS:
        for model in ("personal", "shared"):
            wanted = pytest.approx(there.values(metric, model), rel=1e-7)
            assert here.values(metric, model) == wanted
            assert here.pool(metric, model) == pytest.approx(there.pool(metric, model), rel=1e-7)
        assert here.on_server(metric) == pytest.approx(there.on_server(metric), rel=1e-7)
    assert here.total("up_bytes") == there.total("up_bytes")
    assert (here.federation.labels == there.federation.labels).all()
    assert here.evaluated.tolist() == [4]
    assert here.selection == there.selection


def test_calibration_per_batch_is_named_in_the_tables(tmp_path: Path, mixed: Kept) -> None:
    store = kept(
        tmp_path / "run", method="fedavg", rounds=1, calibration="per-batch", held_out=0.25
    )
    for table in ("clients.csv", "newcomers.csv"):
        columns = read(store.path / table)[1][0].keys()
        assert {"ece_per_batch", "mce_per_batch"} <= columns
        assert not {"ece", "mce"} & columns
    assert {"ece", "mce"} <= rows_of(mixed)[0].keys()


def test_the_federation_says_who_has_what(mixed: Kept) -> None:
    """30 examples each: floor(0.2 * 30) = 6 for testing, floor(0.1 * 24) = 2 for choosing, 22."""
    rows = read(mixed.path / "federation.csv")[1]
    assert [row["client"] for row in rows] == ["0", "1", "2", "3"]
    for i, row in enumerate(rows):
        assert (row["train"], row["validation"], row["test"]) == ("22", "2", "6")
        counts = [int(count) for count in row["labels"].split(" ")]
        assert counts == mixed.run.setting.federation.label_counts(i).tolist()
        assert sum(counts) == 30
        scored = rows_of(mixed, round="4", client=str(i), model="personal", split="test")
        assert scored[0]["n"] == row["test"]


def test_the_rounds_say_what_they_cost(mixed: Kept) -> None:
    """16*8 + 8 + 8*10 + 10 = 226 parameters of 4 bytes go down to each of two clients: 1,808; the
    same comes up with a count. The learning rate of round t is 0.1 * 0.99^t."""
    rows = read(mixed.path / "rounds.csv")[1]
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]
    for t, row in enumerate(rows, start=1):
        assert float(row["lr"]) == pytest.approx(0.1 * 0.99**t, rel=1e-12)
        assert (row["asked"], row["answered"], row["down_bytes"]) == ("2", "2", "1808")
        assert 1808 < int(row["up_bytes"]) <= 1808 + 2 * 8
        found = mixed.run.rounds[t - 1].cost.head_variance
        assert found is not None
        assert float(row["head_variance"]) == pytest.approx(found, rel=1e-7)
        assert (float(row["evaluate_seconds"]) > 0) == (t % 2 == 0)


def test_the_summary_says_how_it_ended(mixed: Kept) -> None:
    summary = json.loads((mixed.path / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("finished", 4)
    assert summary["digest"] == mixed.run.digest
    assert summary["federation"] == mixed.run.setting.federation.digest()


@pytest.mark.parametrize(
    ("method", "models", "server"),
    [("fedavg", ["personal", "shared"], True), ("local", ["personal"], False)],
)
def test_what_a_method_lacks_has_no_rows(
    tmp_path: Path, method: str, models: list[str], server: bool
) -> None:
    """Four clients, two splits, only after the last round; FedAvg has no path, Local no server."""
    store = kept(tmp_path / "run", method=method, rounds=1)
    expected = Counter(dict.fromkeys(models, 8))
    expected["shared"] += server
    assert Counter(row["model"] for row in rows_of(store)) == +expected
    assert {row["at"] for row in rows_of(store)} == {""}
    assert len(rows_of(store, client="server")) == server
    (row,) = read(store.path / "rounds.csv")[1]
    assert (row["head_variance"] == "") == (method == "local")


def test_without_validation_data_there_are_no_rows_of_them(tmp_path: Path) -> None:
    store = kept(tmp_path / "run", method="fedavg", rounds=1, validation=0)
    assert Counter(row["split"] for row in rows_of(store)) == {"test": 9}
    assert {row["validation"] for row in read(store.path / "federation.csv")[1]} == {"0"}


def test_rows_are_on_disk_when_their_round_is_done(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def look(_: object) -> None:
        rounds = read(tmp_path / "run" / "rounds.csv")[1]
        clients = read(tmp_path / "run" / "clients.csv")[1]
        seen.append((len(rounds), len(clients)))

    federate(Experiment(**SETTINGS, method="fedavg"), out=tmp_path / "run", watch=look)
    assert seen == [(1, 0), (2, 17), (3, 17), (4, 34)]


def test_a_run_is_written_into_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    kept(tmp_path / "run", method="fedavg", rounds=1)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "experiment.toml",
        "summary.json",
        "state.lmdb",
        "state.lock",
        *TABLES,
    }


def test_drafts_that_a_killed_process_left_are_removed(tmp_path: Path) -> None:
    kept(tmp_path / "run", method="fedavg", rounds=1)
    draft = tmp_path / "run" / "summary.json.0123abcd.part"
    draft.write_text("{")
    resume(tmp_path / "run", rounds=2)
    assert not draft.exists()


def test_what_is_already_there_is_not_touched(tmp_path: Path) -> None:
    directory, file = tmp_path / "run", tmp_path / "file"
    directory.mkdir()
    (directory / "precious").write_text("kept")
    file.write_text("kept")
    for path in (directory, file):
        with raises(IsthmusError):
            kept(path, method="fedavg", rounds=1)
    with raises(IsthmusError):
        kept(file / "below", method="fedavg", rounds=1)
    assert [path.name for path in directory.iterdir()] == ["precious"]
    assert (directory / "precious").read_text() == file.read_text() == "kept"
