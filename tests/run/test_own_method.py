"""A method of one's own is an argument, like data and networks of one's own."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import isthmus
from commands import Isthmus
from golden import check, raises
from isthmus import Client, Clients, Experiment, IsthmusError, Method, Task, federate, resume
from isthmus.formulas.vector import mean
from isthmus.methods import METHODS
from isthmus.run import record as reader

SETTINGS = {
    "data": {"name": "synthetic", "samples": 300},
    "clients": 6,
    "rounds": 4,
    "epochs": 1,
    "lr": 0.05,
    "seed": 3,
}


class Server(NamedTuple):
    w: Tensor
    m: Tensor


class Reply(NamedTuple):
    w: Tensor
    n: Tensor


@dataclass(frozen=True)
class Heavy(Method):
    """FedAvg whose server keeps momentum."""

    beta: float = 0.5
    names: tuple[str, ...] = ("a", "b")

    def init(self, task: Task) -> Server:
        return Server(task.w0, torch.zeros_like(task.w0))

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server.w)
        w = mean(reply.w, reply.n) + self.beta * server.m
        return Server(w, w - server.w)

    def local(self, client: Client, own: tuple[()], w: Tensor) -> tuple[tuple[()], Reply]:
        return own, Reply(client.descend(w), client.n)

    def personal(self, client: Client, own: tuple[()], server: Server) -> Tensor:
        return server.w

    def common(self, server: Server) -> Tensor:
        return server.w


def experiment(**changes: Any) -> Experiment:
    return Experiment(**SETTINGS | changes)


def test_it_works_after_others_were_used_and_leaves_no_trace() -> None:
    """Without momentum it is FedAvg; the table of methods stays as it was."""
    before = dict(METHODS)
    plain = federate(experiment(method="fedavg"))
    mine = federate(experiment(), method=Heavy(beta=0.0))
    assert torch.equal(mine.progress.server.w, plain.progress.server.w)
    assert before == METHODS


def test_records_have_it_under_its_classs_name(tmp_path: Path) -> None:
    run = federate(experiment(), method=Heavy(), out=tmp_path / "run")
    written = tomllib.loads((tmp_path / "run" / "experiment.toml").read_text())
    assert written["method"] == {"name": "Heavy", "own": True, "beta": 0.5, "names": ["a", "b"]}
    assert reader.read(tmp_path / "run").method == "Heavy"
    check(repr(run))


def test_a_run_of_it_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = federate(experiment(), method=Heavy())
    path = tmp_path / "run"
    federate(experiment(), method=Heavy(), out=path, watch=lambda done: done.cost.round == 2)
    assert resume(path, method=Heavy()).digest == whole.digest
    with isthmus.open(path, method=Heavy()) as opened:
        assert torch.equal(opened.client(0).w, whole.progress.server.w)


@pytest.mark.parametrize(
    "method",
    [
        None,
        Heavy(beta=0.9),
    ],
)
def test_another_one_or_none_is_refused(tmp_path: Path, method: Any) -> None:
    federate(experiment(), method=Heavy(), out=tmp_path / "run")
    with raises(IsthmusError):
        resume(tmp_path / "run", method=method)


def test_the_command_line_says_that_it_cannot_have_it(isthmus: Isthmus, tmp_path: Path) -> None:
    federate(experiment(), method=Heavy(), out=tmp_path / "run")
    check(isthmus("resume", tmp_path / "run").mistake)


def test_it_is_compared_with_others_over_seeds(isthmus: Isthmus, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        federate(experiment(seed=seed), method=Heavy(), out=tmp_path / f"heavy-{seed}")
        wanted = experiment(seed=seed, method="fedavg")
        federate(wanted, out=tmp_path / f"fedavg-{seed}")
    names = [f"{name}-{seed}" for name in ("heavy", "fedavg") for seed in (1, 2, 3)]
    said = isthmus("report", *(tmp_path / name for name in names), "--out", "page.html")
    assert said.code == 0
    assert "Heavy" in said.out
    assert "Heavy" in Path("page.html").read_text()
