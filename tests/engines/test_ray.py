"""Ray, for real: a cluster of several nodes on this machine, some of which come and go.

One cluster serves all tests, in their order: starting nodes and actors is what takes time.
"""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, Federation, IsthmusError, Run, federate, resume
from isthmus.engines import messages
from isthmus.engines.base import Cluster
from isthmus.engines.ray import share_cluster
from isthmus.errors import ClusterLostError
from isthmus.run.build import build
from isthmus.run.loop import RoundResult

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray's own

SMALL = {
    "method": "superfed-mm",
    "data": "digits",
    "clients": 12,
    "clients_per_round": 6,
    "rounds": 5,
    "epochs": 6,
    "eval_every": 2,
    "seed": 3,
}
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "a secret of thirty-two characters")
        patch.delenv("RAY_ADDRESS", raising=False)
        ray._raylet.Config.initialize("")  # it has been imported before
        from ray.cluster_utils import Cluster as Nodes

        nodes = Nodes(initialize_head=True, head_node_args=NODE)
        nodes.add_node(**NODE)
        nodes.add_node(**NODE)
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture(scope="module")
def plain() -> Run:
    return federate(Experiment(**SMALL), workers=1)


def table(path: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((120, 4)).astype(np.float32), np.arange(120) % 3
    np.savez(path, x=x, y=y)
    return path


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:1",
        "ray://10.0.0.1:10001",
        "somewhere",
    ],
)
def test_a_wrong_address_is_one_line(address: str) -> None:
    with raises(IsthmusError):
        federate(Experiment(**SMALL), cluster=Cluster(address))


def test_at_the_command_line_it_leaves_nothing_behind(isthmus: Isthmus) -> None:
    check(isthmus("run", "--ray", "127.0.0.1:1", "--rounds", 1, "--out", "run").mistake)
    assert not Path("run").exists()


def test_another_version_of_ray_is_one_line(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "2.1.0")
    with raises(IsthmusError):
        federate(Experiment(**SMALL), cluster=Cluster(cluster.address))


@pytest.mark.parametrize(("jobs", "runs", "cores"), [(None, 3, 1), (1, 1, 3), (9, 3, 1)])
def test_runs_of_a_comparison_share_the_cores(
    cluster: Any, jobs: int | None, runs: int, cores: int
) -> None:
    with share_cluster(Cluster(cluster.address), jobs) as share:
        assert (share.nodes, share.runs, share.cores) == (3, runs, cores)
        assert share.to_table()["cluster"]["address"] == cluster.address
        assert not ray.is_initialized(), "runs connect, whoever waits for them does not"


def test_a_comparison_spreads_its_runs_over_the_nodes(cluster: Any, isthmus: Isthmus) -> None:
    compare = ("compare", "--methods", "fedavg,ditto", "--seeds", 1, "--rounds", 2)
    digests = []
    for where in (("--ray", cluster.address), ()):
        assert isthmus(*compare, *where, "--set", "epochs=1", "--out", f"in-{len(where)}").code == 0
        runs = sorted(Path(f"in-{len(where)}").glob("runs/*/summary.json"))
        digests.append([json.loads(run.read_text())["digest"] for run in runs])
    assert len(digests[0]) == 2
    assert digests[0] == digests[1]


def catch_actor(raylets: set[int]) -> psutil.Process:
    """Stops an actor of these nodes in the midst of a computation, however short that is."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for process in psutil.process_iter(["ppid", "cmdline"]):
            with suppress(psutil.Error):
                if process.info["ppid"] in raylets and is_computing(process):
                    process.suspend()
                    if is_computing(process):
                        return process
                    process.resume()
    raise AssertionError("no actor has computed anything for a minute")


def is_computing(process: psutil.Process) -> bool:
    return (process.cmdline() or [""])[0].startswith("ray::ClientActor.compute")


def find_raylet(node: Any) -> int:
    (raylet,) = node.all_processes["raylet"]
    return int(raylet.process.pid)


def test_any_nodes_and_actors_give_the_bits_of_loop(cluster: Any, plain: Run) -> None:
    """An actor is killed in the second round, a node in the third; another one joins."""
    raylets = {find_raylet(node): node for node in cluster.worker_nodes}
    notes: dict[int, str] = {}

    def kill_actor() -> None:
        catch_actor(set(raylets)).kill()

    def kill_node() -> None:
        actor = catch_actor(set(raylets))
        cluster.remove_node(raylets[actor.ppid()], allow_graceful=False)
        with suppress(psutil.NoSuchProcess):
            actor.kill()  # it would notice by itself if it were not stopped

    def watch(done: RoundResult) -> None:
        notes[done.cost.round] = "\n".join(done.notes)
        if done.cost.round in (1, 2):
            soon.append(others.submit(kill_actor if done.cost.round == 1 else kill_node))
        if done.cost.round == 3:
            cluster.add_node(**NODE)

    soon: list[Future[None]] = []
    with ThreadPoolExecutor(1) as others:
        run = federate(Experiment(**SMALL), cluster=Cluster(cluster.address), watch=watch)
    for each in soon:
        each.result()
    assert run.digest == plain.digest
    assert run.experiment.engine == "ray"
    everything = "\n".join(notes.values())
    assert len(re.findall(r"its actor on node .*? ended; computed again", everything)) >= 2
    check(everything)


def test_other_or_missing_data_on_a_node_are_one_line(cluster: Any, tmp_path: Path) -> None:
    own = {"name": "files", "path": str(table(tmp_path / "own.npz", 1))}
    experiment = Experiment(**SMALL | {"data": own, "partition": "iid", "model": "mlp"})
    ray.init(cluster.address, log_to_driver=False)  # nobody leaves it between
    try:
        for change in (lambda: table(tmp_path / "own.npz", 2), (tmp_path / "own.npz").unlink):
            table(tmp_path / "own.npz", 1)
            setting = build(experiment, workers=1, cluster=Cluster(cluster.address)).setting
            engine: Any = setting.engine
            change()
            with raises(IsthmusError):
                engine.prepare(setting)
            engine.close()
    finally:
        ray.shutdown()


def test_own_data_are_sent_and_a_lost_head_is_one_line(
    cluster: Any, plain: Run, tmp_path: Path
) -> None:
    """The run goes on from its last round without the cluster, to the same digest."""
    out = tmp_path / "run"
    address = cluster.address

    def watch(done: RoundResult) -> None:
        if done.cost.round == 2:
            cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)

    with raises(ClusterLostError):
        federate(
            Experiment(**SMALL),
            cluster=Cluster(address, send_data=True),
            workers=1,
            out=out,
            watch=watch,
        )
    after = resume(out)
    assert len(after.rounds) == 3
    assert after.digest == plain.digest
    assert after.experiment.engine == "loop"


def test_a_federation_that_is_packed_is_the_same() -> None:
    x, y = np.zeros((40, 3), np.float32), np.arange(40) % 2
    federation = Federation.of(x, y, clients=np.repeat([0, 1], 20), seed=1)
    packed = federation.pack()
    assert packed.digest() == federation.digest()
    assert [packed.sizes(i) for i in range(len(packed))] == [(15, 1, 4)] * 2


def test_a_mapped_array_is_named_by_its_file_or_sent(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(1000))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for array, by_file, sent in (
        (mapped, True, 0),
        (mapped[1:], True, 7992),
        (mapped, False, 8000),
    ):
        message = messages.write(array, {}, by_file=by_file)
        assert sum(part.nbytes for part in message.parts) == sent
        assert np.array_equal(messages.read(message, {}), array)
