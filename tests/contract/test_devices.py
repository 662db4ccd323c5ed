"""Devices, as far as a machine without any can tell: by where tensors are.

Tensors on torch's `meta` device have a shape and no numbers, and torch refuses to compute with one
on it and one on the CPU. What comes back from there comes back as ones.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from golden import raises
from isthmus import Experiment, IsthmusError, federate, tree
from isthmus.cohort import Clients, Round
from isthmus.engines import choice, devices
from isthmus.engines.base import Plan
from isthmus.engines.devices import Place
from isthmus.engines.loop import Loop
from isthmus.engines.stacked import Stacked
from isthmus.models.flat import Flat
from isthmus.run import open as opened
from isthmus.run.build import build
from isthmus.run.loop import resume
from small import advance, begin, federation, setting
from table import ROWS, Row

META = torch.device("meta")
both_engines = pytest.mark.parametrize(
    "engine", [Loop(device="meta"), Stacked(3, device="meta")], ids=["loop", "stacked"]
)


@pytest.fixture(autouse=True)
def ones_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def cpu(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_meta:
            return tensor
        return torch.ones(tensor.shape, dtype=tensor.dtype, device="cpu")

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)


def tensors_of(thing: Any) -> list[torch.Tensor]:
    """All tensors that an object holds, however deep."""
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, torch.nn.Module):
        return [*thing.parameters(), *thing.buffers()]
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, list | tuple):
        return [tensor for part in thing for tensor in tensors_of(part)]
    return tensors_of(vars(thing)) if hasattr(thing, "__dict__") and not callable(thing) else []


@both_engines
def test_all_that_a_client_function_sees_is_on_the_device(engine: Any) -> None:
    made = setting({"name": "superfed-mm", "start": 0.0}, engine)
    seen = []

    def look(client: Any, own: Any, server: Any, mine: Any) -> Any:
        seen.extend(tensors_of([client, client.task, client.model, client.examples]))
        seen.extend(tensors_of([own, server, mine, torch.zeros(1), torch.linspace(0, 1, 3)]))
        return own, (client.n,)

    round = Round(made, 0, {})
    server = made.method.init(made.task)
    _, (n,) = Clients([1, 2, 4], round).map(look, server, each=torch.arange(3.0))
    assert len(seen) > 20
    assert {tensor.device for tensor in seen} == {META}
    assert {leaf.device.type for leaf in (n, *tree.leaves(tuple(round.changed.values())))} == {
        "cpu"
    }


@both_engines
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_every_method_computes_where_it_is_put(row: Row, engine: Any) -> None:
    """Two rounds, in phase II where there is one, and an evaluation: nothing mixes devices."""
    made = setting(row.method, engine, federation((9, 14)), rounds=2, epochs=1)
    progress, _ = advance(made, begin(made), evaluate=False)
    looks = not row.name.startswith("floco")  # which leaves a point of its lattice out by number
    progress, step = advance(made, progress, evaluate=looks)
    assert (step.evaluation is not None) == looks
    states = (progress.server, *progress.own.values())
    assert {leaf.device.type for leaf in tree.leaves(states)} == {"cpu"}


def test_a_start_that_is_drawn_on_a_device_is_the_one_drawn_on_the_cpu() -> None:
    network = setting("fedavg").task.model
    with Place("meta").activate():
        assert torch.equal(network.fresh(seed=4), network.fresh(seed=4))
    assert network.to(META).fresh(seed=4).device == META


def test_the_task_is_moved_once() -> None:
    task, place = setting("fedavg").task, Place("meta")
    assert place.move_task(task) is place.move_task(task)
    assert Place().move_task(task) is task


def test_one_process_computes_on_a_device() -> None:
    assert Loop(workers=4, device="meta").workers == 1
    assert Loop(workers=4).workers == 4


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps", "cud", "gpu"])
def test_a_device_that_is_not_here_is_one_line(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "list_devices", lambda: ["cpu"])
    experiment = Experiment(method="fedavg", data="digits", device=device)
    with raises(IsthmusError):
        federate(experiment, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_first_cuda_device_need_not_be_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "list_devices", lambda: ["cpu", "cuda:0"])
    devices.check("cuda")
    devices.check("cuda:0")
    with raises(IsthmusError):
        devices.check("cuda:1")


def test_a_run_of_a_device_can_be_looked_at_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as if somebody had taken the device away after the run; going on is refused."""
    monkeypatch.setattr(devices, "check", lambda device: None)
    monkeypatch.setattr(Place, "on_cpu", True)
    given = {"method": "fedavg", "data": "digits", "rounds": 2, "epochs": 1}
    federate(Experiment(**given, device="mps"), out=tmp_path / "run", watch=lambda done: True)
    monkeypatch.undo()
    monkeypatch.setattr(devices, "list_devices", lambda: ["cpu"])
    with opened.open(tmp_path / "run") as run:
        assert run.experiment.device == "cpu"
    with raises(IsthmusError):
        resume(tmp_path / "run")


def chosen(**changes: Any) -> tuple[str, int, str]:
    given = {"method": "fedavg", "data": "synthetic", "clients": 60, "partition": "iid"}
    given |= {"model": {"name": "mlp", "hidden": 16}, "clients_per_round": 50, "rounds": 1}
    experiment, made = build(Experiment(**given | changes))
    assert type(made.engine) is {"loop": Loop, "stacked": Stacked}[experiment.engine]
    return experiment.engine, experiment.block, experiment.step


def test_many_tiny_clients_are_stacked_and_others_are_not() -> None:
    """16 features and 10 classes, 16 wide: 272 + 170 parameters, in 24 bytes each; at most 256."""
    assert chosen() == ("stacked", 256, "eager")
    assert chosen(clients_per_round=49)[0] == "loop"
    assert chosen(step="compiled") == ("loop", 256, "compiled")
    assert chosen(engine="loop")[0] == "loop"
    assert chosen(block=7)[1] == 7
    wide = chosen(model={"name": "mlp", "hidden": 200}, step="eager")
    assert wide == ("loop", (12 << 20) // (24 * 5_410), "eager")  # 3,400 + 2,010 parameters


def test_uneven_clients_are_not_stacked() -> None:
    assert chosen(partition={"name": "quantity", "alpha": 0.3})[0] == "loop"


def test_what_stacked_might_refuse_is_not_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of one's own, and one whose batches are normalised."""
    monkeypatch.setattr(devices, "check", lambda device: None)
    own = Experiment(method="fedavg", data="digits", device="cuda", rounds=1)
    assert (
        build(own, model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))).experiment.engine
        == "loop"
    )
    mixing = Flat(lambda: nn.Sequential(nn.BatchNorm1d(64, track_running_stats=False)))
    plan = Plan("auto", "auto", 0, "cuda", 1, 1, 1, 1, sizes=[1], networks=[mixing], own=False)
    assert choice.choose_engine(plan) == "loop"


def test_a_device_is_for_blocks_and_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte of vectors there instead of a cache: 256 clients are the most."""
    monkeypatch.setattr(devices, "check", lambda device: None)
    wide = {"name": "mlp", "hidden": 200}
    assert chosen(device="cuda", clients_per_round=5, model=wide) == ("stacked", 256, "eager")
    assert chosen(device="cuda", engine="loop", rounds=10_000)[2] == "eager"
    with raises(IsthmusError):
        chosen(device="mps", step="compiled")


def test_the_record_names_what_was_chosen(tmp_path: Path) -> None:
    federate(Experiment(method="fedavg", data="digits", rounds=1, epochs=1), out=tmp_path / "run")
    record = (tmp_path / "run" / "experiment.toml").read_text()
    assert 'engine = "loop"\nblock = 108\nstep = "eager"\nunroll = 0\ndevice = "cpu"\n' in record
