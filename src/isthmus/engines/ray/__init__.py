"""The engine `ray`: what `loop` computes in processes here, actors compute on a Ray cluster.

Actors hold what worker processes hold, and run the same code on the same messages: any number of
them, on any number of nodes with like processors, gives the same bits. Ray itself is imported when
the first call, or somebody who asks how many actors there are, needs it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from isthmus.context import RunContext
from isthmus.data.federation import Federation
from isthmus.engines.base import Cluster, Plan
from isthmus.engines.compiled import Compiled
from isthmus.engines.loop import Loop
from isthmus.engines.pool import Pool
from isthmus.engines.ray.connection import Connected, connect, count_things

if TYPE_CHECKING:
    from isthmus.engines.ray.actors import ActorPool


class ClusterShare(NamedTuple):
    """What each of several runs has of a cluster."""

    cluster: Cluster
    nodes: int
    runs: int  # at a time
    cores: int  # for each

    def describe(self) -> str:
        """Describe what there is, and what each run has."""
        nodes, cores = count_things(self.nodes, "node"), count_things(self.cores, "core")
        runs = count_things(self.runs, "run")
        return f"ray at {self.cluster.address}: {nodes}, {cores} for each of {runs} at a time"

    def to_table(self) -> dict[str, Any]:
        """Write down for another process what a run has."""
        return {"cluster": asdict(self.cluster), "workers": self.cores}


@contextmanager
def share_cluster(cluster: Cluster, runs: int | None) -> Iterator[ClusterShare]:
    """Share a cluster's cores among so many runs at a time; as many as it has nodes if left out.

    One that is started for it stays until the end; to another one only runs are connected.
    """
    connected = connect(cluster)
    try:
        nodes = connected.list_nodes()
        cores = sum(node.cores for node in nodes)
        together = max(1, min(runs or len(nodes), cores))
        found = replace(cluster, address=connected.address)
        if not connected.local:
            connected.close()
        yield ClusterShare(found, len(nodes), together, cores // together)
    finally:
        connected.close()


class RayEngine(Loop):
    """Runs clients on a cluster, each on one thread, on exactly its own examples."""

    uses_devices = False

    def __init__(
        self,
        cluster: Cluster = Cluster(),  # noqa: B008 - it is frozen
        compiled: Compiled | None = None,
        read_data: Callable[[], Federation] | None = None,
        most: int = 0,
    ):
        Loop.__init__(self, compiled=compiled)
        self.cluster = cluster
        self.most = most  # actors that this run may have; 0: one for each core of the cluster
        self._read_data = None if cluster.send_data else read_data
        self._connected: Connected | None = None

    @classmethod
    def make(cls, plan: Plan) -> "RayEngine":
        """Make the engine of a run, which compiles steps where the plan says so."""
        compiled = Compiled.make(plan) if plan.step == "compiled" else None
        return cls(plan.cluster, compiled, plan.read_data, plan.workers)

    @property
    def workers(self) -> int:
        """How many actors compute: one for each core that the cluster has now."""
        cores = sum(node.cores for node in self._connect().list_nodes())
        return max(1, min(cores, self.most) if self.most else cores)

    def delegates(self, requests: int) -> bool:
        """Whether actors compute whatever there is, be it a single client."""
        return requests > 0

    def prepare(self, context: RunContext) -> None:
        """Start actors, and wait until the nodes have their data; raise what is wrong there."""
        pool: Any = self.get_pool(context)
        pool.prepare()

    def make_pool(self, context: RunContext) -> Pool:
        """Start the actors that compute, on the nodes that are there."""
        from isthmus.engines.ray.actors import ActorPool

        return ActorPool(
            self._connect(), context, self.compiled, self._read_data, self.profile, self.most
        )

    def describe(self, why: str = "") -> str:
        """Describe where the cluster is and how large, and whether and why steps are compiled."""
        connected = self._connect()
        nodes = count_things(len(connected.list_nodes()), "node")
        cores = count_things(self.workers, "core")
        return f"ray {connected.where}: {nodes}, {cores}; {self.describe_steps(why)}"

    def describe_now(self) -> str:
        """Describe how many nodes and actors there are, and how many of these compute."""
        pool: ActorPool | None = self._pool  # type: ignore[assignment]
        return "" if pool is None else pool.describe_now()

    def close(self) -> None:
        """End the actors, and a Ray that was started for them; the next call starts new ones."""
        Loop.close(self)
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def _connect(self) -> Connected:
        if self._connected is None:
            self._connected = connect(self.cluster, self.most)
        return self._connected
