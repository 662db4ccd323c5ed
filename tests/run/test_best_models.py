"""Each client's best model on validation data: which one it is, kills, resuming, sharing."""

from pathlib import Path
from typing import Any

import pytest
import torch

import isthmus
from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate, resume
from isthmus.report import show
from isthmus.run.database import Database
from isthmus.run.loop import RoundResult
from isthmus.run.record import read
from isthmus.run.store import BestModels
from small import read_rows

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "samples": 200},
    "clients": 5,
    "clients_per_round": 3,
    "epochs": 3,
    "lr": 0.5,
    "rounds": 6,
    "eval_every": 1,
    "model": {"name": "mlp", "hidden": 8},
    "seed": 3,
}


def experiment(method: str = "superfed-mm", **changes: Any) -> Experiment:
    return Experiment(method=method, **(SETTINGS | changes))


def losses(run: Path) -> dict[tuple[int, int], float]:
    """The validation loss of each personal model, by client and round."""
    return {
        (int(row["client"]), int(row["round"])): float(row["loss"])
        for row in read_rows(run / "clients.csv")
        if (row["model"], row["split"]) == ("personal", "validation")
    }


@pytest.mark.parametrize("method", ["superfed-mm", "local", "fedavg", "fedavg-lu", "fedsimsup"])
def test_the_best_is_the_model_of_the_least_validation_loss(method: str, tmp_path: Path) -> None:
    """What a plain module gives is that of the engine but for the last bits of float32."""
    plain = federate(experiment(method), workers=1)
    run = federate(experiment(method), out=tmp_path / "run", keep_best=True, workers=1)
    assert run.digest == plain.digest  # keeping moves no bit
    recorded = losses(tmp_path / "run")
    with isthmus.open(tmp_path / "run") as opened:
        for i in range(5):
            best = opened.client(i, "best")
            of_client = {t: loss for (client, t), loss in recorded.items() if client == i}
            assert best.round == min(of_client, key=lambda t: of_client[t])
            found = best.tally("validation")
            assert float(found.loss / found.n) == pytest.approx(min(of_client.values()), rel=1e-4)
        assert opened.client(0).round == 6
    rounds = read(tmp_path / "run").best_rounds()
    with isthmus.open(tmp_path / "run") as opened:
        assert rounds.tolist() == [model.round for model in opened.clients(which="best")]


def test_a_resumed_run_keeps_what_one_piece_keeps(tmp_path: Path) -> None:
    federate(experiment(), out=tmp_path / "whole", keep_best=True, workers=1)

    def stop(done: RoundResult) -> bool:
        return done.cost.round == 3

    federate(experiment(), out=tmp_path / "parts", keep_best=True, watch=stop, workers=1)
    resume(tmp_path / "parts", workers=1)
    with isthmus.open(tmp_path / "whole") as one, isthmus.open(tmp_path / "parts") as other:
        for mine, its in zip(one.clients(which="best"), other.clients(which="best"), strict=True):
            assert mine.round == its.round
            assert torch.equal(mine.w, its.w)


def test_a_killed_round_leaves_the_bests_of_the_round_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are written before their round where they are many; only the round makes them count.

    Here every model is one too many, and the process ends before the third round is committed.
    """
    import isthmus.run.store as module

    monkeypatch.setattr(module, "TOGETHER", 0)

    def stop(done: RoundResult) -> bool:
        return done.cost.round == 2

    federate(experiment(), out=tmp_path / "two", keep_best=True, watch=stop, workers=1)
    write, rounds = Database.write, []

    def die(self: Database, changes: Any) -> None:
        rounds.extend(key for key in changes if key == b"progress" and changes[key] != b"0")
        if len(rounds) == 3:
            raise KeyboardInterrupt
        write(self, changes)

    monkeypatch.setattr(Database, "write", die)
    with pytest.raises(KeyboardInterrupt):
        federate(experiment(), out=tmp_path / "run", keep_best=True, workers=1)
    monkeypatch.setattr(Database, "write", write)
    with isthmus.open(tmp_path / "two") as expected, isthmus.open(tmp_path / "run") as found:
        assert found.progress.t == 2
        pairs = zip(expected.clients(which="best"), found.clients(which="best"), strict=True)
        assert all(torch.equal(mine.w, its.w) for mine, its in pairs)
    resume(tmp_path / "run", workers=1)
    database = Database(tmp_path / "run" / "state.lmdb")
    wanted = {kept.model for kept in BestModels(database).known.values()}
    held = {key.removeprefix(b"model/").decode() for key in database.keys(b"model/")}
    database.close()
    assert held == wanted  # what the kill left behind is gone


def test_clients_with_one_model_share_one_entry(tmp_path: Path) -> None:
    federate(experiment("fedavg"), out=tmp_path / "run", keep_best=True, workers=1)
    database = Database(tmp_path / "run" / "state.lmdb")
    rounds = {kept.round for kept in BestModels(database).known.values()}
    assert len(list(database.keys(b"model/"))) == len(rounds)
    database.close()


def test_commands_take_the_best_and_say_where_there_is_none(
    tmp_path: Path, isthmus: Isthmus
) -> None:
    settings = ["--method", "fedavg", "--data", "synthetic", "--rounds", 2, "--set", "clients=4"]
    settings += ["--set", "clients_per_round=4", "--set", "epochs=1"]
    kept, plain = tmp_path / "kept", tmp_path / "plain"
    isthmus("run", *settings, "--out", kept)
    isthmus("run", *settings, "--no-keep-best", "--out", plain)
    assert isthmus("export", kept, "--client", 1, "--which", "best", "--out", tmp_path).code == 0
    assert '"which": "best"' in (tmp_path / "client-1.json").read_text()
    check(isthmus("cross", kept, "--which", "best").out)
    check(isthmus("export", plain, "--client", 1, "--which", "best", "--out", tmp_path).mistake)
    check(isthmus("cross", kept, "--which", "bets").mistake)
    check(show.describe(show.collect(kept)))
    check(show.describe(show.collect(plain)))


def test_without_validation_data_nothing_is_begun(tmp_path: Path) -> None:
    with raises(IsthmusError):
        federate(experiment("fedavg", validation=0.0), out=tmp_path / "run", keep_best=True)
    assert not (tmp_path / "run").exists()
