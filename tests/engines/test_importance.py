"""Examples that count more than others: in the loss, in both engines, and nowhere else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from golden import raises
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.client import Client
from isthmus.context import Call, Request
from isthmus.engines.compiled import Compiled
from isthmus.engines.loop import Loop
from isthmus.engines.stacked import Stacked
from isthmus.run.build import build

SIZES = (20, 33, 26)
ENGINES: dict[str, Callable[[], Any]] = {"loop": Loop, "stacked": lambda: Stacked(block=3)}


def patients(weight: Any = None) -> Federation:
    """Three clients whose second class is rare."""
    rng = np.random.default_rng(4)
    n = sum(SIZES)
    y = (np.arange(n) % 7 == 0).astype(int)
    x = (rng.normal(size=(n, 4)) + y[:, None]).astype(np.float32)
    return Federation.of(x, y, clients=np.repeat([0, 1, 2], SIZES), seed=1, weights=weight)


def setting(data: Federation, engine: Any, **changes: Any) -> Any:
    given = {"rounds": 2, "epochs": 2, "clients_per_round": 3, "batch_size": 8, **changes}
    made = build(Experiment(method="fedavg", **given), data=data, workers=1).setting
    return made._replace(engine=engine)


def losses(made: Any) -> list[float]:
    """Each client's loss over all it trains on, at the start."""

    def measure(client: Client, own: Any, w: Any) -> Any:
        return own, client.loss(w, client.examples)

    call = Call(measure, (made.task.w0,), 0, "train", 0)
    requests = (Request(i, (), ()) for i in range(3))
    return [float(reply) for _, (_, reply) in sorted(made.engine.run(made, call, requests))]


def expected(made: Any, weigh: Callable[[int, np.ndarray], np.ndarray]) -> list[float]:
    result = []
    for i in range(3):
        x, y = made.federation.split(i, "train")
        logits = made.task.model.logits(made.task.w0, x)
        each = torch.nn.functional.cross_entropy(logits, y, reduction="none").detach().numpy()
        weights = weigh(i, y.numpy())
        result.append(float((weights * each).sum() / weights.sum()))
    return result


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("balance", ["none", "classes"])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_loss_is_the_weighted_mean(engine: str, balance: str, weighted: bool) -> None:
    """Balanced, both classes of a client weigh 1/2 together, and by their weights inside."""
    weight = np.random.default_rng(0).uniform(1, 5, sum(SIZES)) if weighted else np.ones(sum(SIZES))
    data = patients(weight if weighted else None)

    def weigh(i: int, y: np.ndarray) -> np.ndarray:
        own = weight[data.splits[i].train]
        return own if balance == "none" else own / np.bincount(y, own)[y]

    made = setting(data, ENGINES[engine](), balance=balance)
    np.testing.assert_allclose(losses(made), expected(made, weigh), rtol=1e-5)


@pytest.mark.parametrize("method", ["fedavg", "superfed-mm", "fedproto", "fedsimsup"])
def test_both_engines_train_alike(method: str) -> None:
    weight = np.random.default_rng(0).uniform(0, 5, sum(SIZES))
    ends = []
    for engine in ("loop", "stacked"):
        given = {"rounds": 2, "epochs": 2, "clients_per_round": 3, "balance": "classes"}
        experiment = Experiment(method=method, engine=engine, selection="fixed", **given)
        run = federate(experiment, data=patients(weight), workers=1)
        ends.append(run.evaluation("personal").figures.loss)
    np.testing.assert_allclose(*ends, rtol=2e-4)


def test_a_compiled_step_counts_them_too() -> None:
    """Its program gets the importance of the next batch, not that of the first."""
    data = patients(np.random.default_rng(0).uniform(0, 5, sum(SIZES)))
    ends = []
    for compiled in (None, Compiled(8, 1, fills=True, make_program=lambda graph, _: graph.forward)):
        made = setting(data, Loop(compiled=compiled))
        requests = (Request(i, (), ()) for i in range(3))
        call = Call(descend, (made.task.w0,), 0, "train", 0)
        ends.append(torch.stack([w for _, w in sorted(made.engine.run(made, call, requests))]))
    torch.testing.assert_close(*ends)


def descend(client: Client, own: Any, w: Any) -> Any:
    return client.descend(w)


def test_weights_that_are_all_zero_get_one_line() -> None:
    weight = np.ones(sum(SIZES))
    weight[: SIZES[0]] = 0
    with raises(IsthmusError):
        federate(Experiment(method="fedavg", rounds=1, clients_per_round=3), data=patients(weight))


def test_arrays_have_weights_too(tmp_path: Path) -> None:
    x, y = np.arange(40.0)[:, None], np.arange(40) % 2
    given = {"x": x, "y": y, "client": np.repeat(["a", "b"], 20)}
    np.savez(tmp_path / "a.npz", weight=np.arange(40), **given)
    data = {"name": "files", "path": str(tmp_path / "a.npz")}
    federation = federate(Experiment(method="fedavg", data=data, rounds=1)).setting.federation
    assert federation.weights(1).tolist() == federation.splits[1].train.tolist()
    for wrong in (-1, np.nan):
        weights = np.ones(40)
        weights[3] = wrong
        with raises(IsthmusError):
            Federation.of(x, y, clients=y, weights=weights)
    with raises(IsthmusError):
        Federation.of(x, y, clients=y, weights=np.ones(3))


class TestTables:
    def write(self, path: Path, weights: list[Any]) -> dict[str, Any]:
        rows = [f"{i},{'ab'[i % 2]},{'xy'[i // 2 % 2]},{w}" for i, w in enumerate(weights)]
        path.write_text("\n".join(["v,client,label,w", *rows]) + "\n")
        return {"name": "table", "path": str(path), "weight": "w"}

    def test_a_column_says_how_much_rows_count(self, tmp_path: Path) -> None:
        data = self.write(tmp_path / "a.csv", [i / 4 for i in range(40)])
        run = federate(Experiment(method="fedavg", data=data, rounds=1, epochs=1))
        federation = run.setting.federation
        assert [column.name for column in federation.arrays.columns] == ["v"]
        assert federation.weights(1).tolist() == [row / 4 for row in federation.splits[1].train]
        before = federation.digest()
        data = self.write(tmp_path / "a.csv", [1] * 40)
        other = federate(Experiment(method="fedavg", data=data, rounds=1, epochs=1))
        assert other.setting.federation.digest() != before

    @pytest.mark.parametrize("wrong", ["-1", "inf", "heavy", ""])
    def test_what_is_no_weight_gets_one_line(self, tmp_path: Path, wrong: str) -> None:
        data = self.write(tmp_path / "a.csv", [1, 1, wrong, *[1] * 9])
        with raises(IsthmusError):
            federate(Experiment(method="fedavg", data=data, rounds=1))
