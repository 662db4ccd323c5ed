"""Workers: the same bits whatever their number, and what happens when one dies."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from golden import check, raises
from isthmus import Client, Clients, Experiment, Method, Task, tree
from isthmus.context import Call, Request
from isthmus.engines import messages
from isthmus.engines.base import ClientError
from isthmus.engines.loop import Loop
from isthmus.engines.workers import START_METHOD
from isthmus.methods import METHODS
from isthmus.run.build import build
from isthmus.system.machine import count_cores
from small import advance, begin, network, setting


class Server(NamedTuple):
    w: Tensor


class Marks(Method):
    """Says who computed, and dies where a file asks it to."""

    def __init__(self, place: Path):
        self.place = place

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def round(self, server: Server, clients: Clients) -> Server:
        _, (who,) = clients.map(self.local, server)
        clients.note(f"{len(set(who.tolist()))} processes, here: {os.getpid() in who.tolist()}")
        return server

    def local(self, client: Client, own: Any, server: Server) -> Any:
        for mark in sorted(self.place.glob("die*")):
            with suppress(FileNotFoundError):  # the other worker was faster
                mark.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return (), (torch.tensor(os.getpid()),)

    def personal(self, client: Client, own: Any, server: Server) -> Tensor:
        return server.w


class Faulty(Marks):
    """Raises what it was told to, in a worker."""

    def local(self, client: Client, own: Any, server: Server) -> Any:
        if int(client.n) > 25:  # client 1 alone
            raise KeyError("lost")
        return (), (torch.tensor(os.getpid()),)


class Nameless(Marks):
    """Maps a function that cannot be named to another process."""

    def round(self, server: Server, clients: Clients) -> Server:
        _, (who,) = clients.map(lambda client, own: ((), (torch.tensor(os.getpid()),)))
        assert set(who.tolist()) == {os.getpid()}
        return server


@pytest.fixture
def engine() -> Iterator[Loop]:
    engine = Loop(workers=2)
    yield engine
    engine.close()


def children() -> set[int]:
    return {process.pid for process in multiprocessing.active_children() if process.pid is not None}


@pytest.mark.parametrize("method", METHODS)
def test_workers_change_no_bit(method: str, engine: Loop) -> None:
    ours, theirs = setting(method, Loop()), setting(method, engine)
    ends: list[Any] = [advance(made, begin(made), evaluate=True) for made in (ours, theirs)]
    seen = [
        (
            tree.pack(end.server),
            {i: tree.pack(own) for i, own in end.own.items()},
            [score.figures.loss.tolist() for score in step.evaluation.scores],
            (step.cost.down_bytes, step.cost.up_bytes),
        )
        for end, step in ends
    ]
    assert seen[0] == seen[1]


def echo(client: Client, own: Tensor) -> Tensor:
    return own


def test_an_answer_is_not_overwritten_by_the_next(
    engine: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has sent one is at its next client before the answer is read."""
    read = messages.read

    def read_late(*arguments: Any, keep: bool) -> Any:
        if keep:  # it is an answer
            time.sleep(0.02)
        return read(*arguments, keep=keep)

    monkeypatch.setattr(messages, "read", read_late)
    made = setting("fedavg", engine)
    requests = [Request(k % 6, torch.full((1000,), k), ()) for k in range(12)]
    answers = [each for _, each in engine.run(made, Call(echo, (), 0, "train", 0), iter(requests))]
    assert sorted(each.unique().item() for each in answers) == list(range(12))


def test_workers_stay_from_round_to_round_and_go_with_the_run(tmp_path: Path, engine: Loop) -> None:
    others = children()
    run = setting("fedavg", engine)._replace(method=Marks(tmp_path))
    progress, step = advance(run, begin(run), evaluate=False)
    check(*step.notes)
    ours = children() - others
    advance(run, progress, evaluate=True)
    assert len(ours) == 2
    assert children() - others == ours
    engine.close()
    assert not children() & ours


def test_workers_go_with_the_engine_that_started_them(tmp_path: Path) -> None:
    others = children()
    run = setting("fedavg", Loop(workers=2))._replace(method=Marks(tmp_path))
    advance(run, begin(run), evaluate=False)
    assert len(children() - others) == 2
    del run
    gc.collect()
    assert not children() - others


@pytest.mark.skipif(START_METHOD != "fork", reason="one process computes here unless asked")
def test_a_run_that_ends_before_workers_would_begin_has_none() -> None:
    """The digits' 20 clients have 6 batches each; 5 of them train, 20 are evaluated: 50 a round."""

    def count(workers: int | None = None, **changes: Any) -> int:
        experiment = Experiment(method="fedavg", data="digits", epochs=1, step="eager", **changes)
        return build(experiment, workers=workers).setting.engine.workers

    assert count(rounds=10) == 1
    assert count(rounds=11) == count_cores()
    assert count(rounds=10, model={"name": "mlp", "hidden": 200}) == count_cores()
    assert count(rounds=10, workers=2) == 2


def test_one_client_needs_no_worker(tmp_path: Path, engine: Loop) -> None:
    run = setting("fedavg", engine, clients_per_round=1)._replace(method=Marks(tmp_path))
    _, step = advance(run, begin(run), evaluate=False)
    check(*step.notes)


def test_a_killed_worker_is_noted_and_its_client_computed_again(
    tmp_path: Path, engine: Loop
) -> None:
    run = setting("fedavg", engine)._replace(method=Marks(tmp_path))
    (tmp_path / "die").touch()
    _, step = advance(run, begin(run), evaluate=False)
    (note,) = [note for note in step.notes if "killed by SIGKILL" in note]
    assert note.endswith("computed again")
    check(note)
    assert step.cost.answered == 4


def test_a_client_that_kills_two_workers_ends_the_run(tmp_path: Path, engine: Loop) -> None:
    """One client only may be at work when the marks are found: six marks outlive two tries each."""
    run = setting("fedavg", engine)._replace(method=Marks(tmp_path))
    for number in range(12):
        (tmp_path / f"die{number}").touch()
    with raises(ClientError):
        advance(run, begin(run), evaluate=False)


def test_what_a_client_raises_in_a_worker_is_raised_here(tmp_path: Path, engine: Loop) -> None:
    run = setting("fedavg", engine, clients_per_round=6)._replace(method=Faulty(tmp_path))
    with raises(ClientError) as raised:
        advance(run, begin(run), evaluate=False)
    assert "Traceback" in "".join(raised.value.__notes__)
    run = run._replace(method=Marks(tmp_path))
    engine.close()
    _, step = advance(run, begin(run), evaluate=False)
    assert step.cost.answered == 6


def test_a_function_without_a_name_runs_here(tmp_path: Path, engine: Loop) -> None:
    run = setting("fedavg", engine)._replace(method=Nameless(tmp_path))
    _, step = advance(run, begin(run), evaluate=False)
    assert step.cost.answered == step.cost.asked == 4


def test_fresh_processes_give_the_same_bits() -> None:
    """Where nothing can be forked, workers are started afresh and sent what they need."""
    engine = Loop(workers=2, start="spawn")
    try:
        ours, theirs = setting("superfed-mm"), setting("superfed-mm", engine)
        alone, _ = advance(ours, begin(ours), evaluate=False)
        together, _ = advance(theirs, begin(theirs), evaluate=False)
        assert tree.pack(alone.server) == tree.pack(together.server)
    finally:
        engine.close()


def test_what_a_fresh_process_cannot_be_sent_is_computed_here() -> None:
    engine = Loop(workers=2, start="spawn")
    run = setting("fedavg", engine, build=lambda: network())
    _, step = advance(run, begin(run), evaluate=False)
    assert step.cost.answered == 4
    assert any(note.startswith("one process computes") for note in step.notes)


SCRIPT = """
import sys
from isthmus import Experiment, federate
federate(Experiment(method="fedavg", data="digits", rounds=2000, step="eager"), workers=2,
         watch=lambda done: print(done.cost.round, flush=True))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_the_run_no_process_is_left(how: signal.Signals) -> None:
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"1\n"
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(run.pid)], capture_output=True)
        workers = [int(pid) for pid in listed.stdout.split()]
        assert len(workers) == 2
        run.send_signal(how)
    ends = time.monotonic() + 60
    while any(alive(pid) for pid in workers) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
