"""The shelf: what a server keeps beside its state, in memory and on disk."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from isthmus import Client, Clients, Federation, Method, Task, tree
from isthmus.context import RunContext
from isthmus.engines.loop import Loop
from isthmus.run.loop import advance
from isthmus.run.schema import NOTES, names
from isthmus.run.store import Memory, Store, apply_update, digest_of
from isthmus.shelf import Shelf, after
from odd_engines import Flaky
from small import setting


class Server(NamedTuple):
    w: Tensor


class Diary(Method):
    """Keeps every round's mean upload on the shelf, for two rounds."""

    def init(self, task: Task) -> Server:
        return Server(task.w0)

    def round(self, server: Server, clients: Clients) -> Server:
        clients.shelf[f"mean/{clients.t}"] = server.w * clients.t
        _, (w,) = clients.map(self.local, server)
        if f"mean/{clients.t - 2}" in clients.shelf:
            del clients.shelf[f"mean/{clients.t - 2}"]
            clients.note(f"round {clients.t - 2} is forgotten")
        return Server(w.mean(0))

    def local(self, client: Client, own: tuple[()], server: Server) -> tuple[tuple[()], Server]:
        return (), Server(client.descend(server.w))

    def personal(self, client: Client, own: tuple[()], server: Server) -> Tensor:
        return server.w


def made(engine: object = None) -> RunContext:
    return setting("fedavg")._replace(method=Diary(), engine=engine or Loop())


def test_a_round_sees_what_it_put_there_and_what_was_there() -> None:
    stored = {"a": torch.tensor(1), "b": torch.tensor(2)}
    shelf = Shelf(stored)
    shelf["c"] = torch.tensor(3)
    del shelf["a"]
    assert sorted(shelf) == ["b", "c"]
    assert "a" not in shelf
    assert len(shelf) == 2
    for gone in ("a", "d"):
        with pytest.raises(KeyError):
            shelf[gone]
        with pytest.raises(KeyError):
            del shelf[gone]
    assert sorted(stored) == ["a", "b"]
    assert sorted(after(stored, shelf.changed)) == ["b", "c"]


def test_memory_and_disk_keep_the_same_shelf(tmp_path: Path) -> None:
    setting = made()
    memory, store = Memory(setting), Store(tmp_path / "run", setting, "seed = 0\n").start()
    for _ in range(4):
        step = advance(setting, memory.progress, evaluate=True)
        memory.commit(step)
        store.commit(advance(setting, store.progress, evaluate=True))
    found = store.progress.shelf
    assert sorted(found) == ["mean/2", "mean/3"]
    assert len(found) == 2
    assert "mean/1" not in found
    for name in found:
        assert tree.pack(found[name]) == tree.pack(memory.progress.shelf[name])
    assert digest_of(memory.progress) == digest_of(store.progress)
    notes = (tmp_path / "run" / "notes.csv").read_text().splitlines()
    header = ",".join(names(NOTES))
    assert notes[-3:] == [header, "3,round 0 is forgotten", "4,round 1 is forgotten"]
    store.close("stopped")


def test_the_shelf_is_part_of_the_digest() -> None:
    setting = made()
    progress = Memory(setting).progress
    step = advance(setting, progress, evaluate=False)
    end = apply_update(progress, step)
    other = end._replace(shelf={"mean/0": end.shelf["mean/0"] + 1})
    assert len({digest_of(end), digest_of(other), digest_of(end._replace(shelf={}))}) == 3


def test_if_nobody_answers_the_shelf_stays() -> None:
    setting = made(Flaky(lambda t, i: True))
    step = advance(setting, Memory(setting).progress, evaluate=True)
    assert step.shelf == {}


def test_a_message_may_be_a_function_of_the_client() -> None:
    """It is sent to each client when its turn comes, and its bytes are counted."""

    class Twice(Diary):
        def round(self, server: Server, clients: Clients) -> Server:
            def given(i: int) -> Tensor:
                asked.append(i)
                return torch.full((3,), float(i))

            asked: list[int] = []
            ids, (lazily,) = clients.map(self.hear, each=given)
            assert sorted(asked) == clients.ids  # the largest client first
            stacked = torch.stack([given(i) for i in clients.ids])
            _, (at_once,) = clients.map(self.hear, each=stacked)
            assert torch.equal(lazily, at_once)
            assert lazily[:, 0].tolist() == ids.tolist()
            return server

        def hear(self, client: Client, own: tuple[()], given: Tensor) -> object:
            return (), (given,)

    setting = made()._replace(method=Twice())
    step = advance(setting, Memory(setting).progress, evaluate=False)
    assert step.cost.down_bytes == 2 * step.cost.asked * 3 * 4


def test_all_uniforms_of_a_descent_are_turned_into_draws_at_once() -> None:
    """From w = 0 with gradient u at each step and lr 0.1, w ends at -0.1 times the draws' sum."""

    class Drawing(Diary):
        def noise(self, task: Task) -> int:
            return 2

        def local(self, client: Client, own: tuple[()], server: Server) -> object:
            seen: list[Tensor] = []

            def draw(u: Tensor) -> Tensor:
                seen.append(u)
                return u.sum(1, keepdim=True).cumsum(0)  # [S, 1]: needs all of them

            start = torch.zeros(1)
            w = client.scan(lambda w, batch: w - 0.1 * batch.u, start, passes=1, draw=draw)
            (u,) = seen
            assert torch.allclose(w, -0.1 * u.sum(1).cumsum(0).sum())
            return (), Server(server.w)

    setting = made()._replace(method=Drawing())
    advance(setting, Memory(setting).progress, evaluate=False)


def test_what_was_computed_once_is_found_by_rows() -> None:
    class Cached(Diary):
        def local(self, client: Client, own: tuple[()], server: Server) -> object:
            sums = client.examples.x.flatten(1).sum(1)
            client.scan(lambda _, batch: _compare(sums[batch.rows], batch.x), ())
            return (), Server(server.w)

    def _compare(cached: Tensor, x: Tensor) -> tuple[()]:
        assert torch.equal(cached, x.flatten(1).sum(1))
        return ()

    setting = made()._replace(method=Cached())
    advance(setting, Memory(setting).progress, evaluate=False)


def test_notes_of_a_partition_are_in_the_records(tmp_path: Path) -> None:
    x, y = np.zeros((40, 3), np.float32), np.arange(40) % 2
    plain = Federation.of(x, y, clients=np.repeat([0, 1], 20))
    noted = Federation(plain.arrays, plain.splits, notes=["two examples were moved"])
    setting = made()._replace(federation=noted)
    Store(tmp_path / "run", setting, "seed = 0\n").start().close("stopped")
    assert (tmp_path / "run" / "notes.csv").read_text().endswith("0,two examples were moved\n")
