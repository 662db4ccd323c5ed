"""Holds the cost of calls on a Ray cluster against the model: `python -m benchmarks cluster`.

Clients that compute nothing answer with as many numbers as they got. What is left is what the run's
process does for each client and for each byte: its processor seconds, and the clock's, are printed
beside what `cost_call` says, which docs/cluster.md derives. With --nodes, so many nodes (separate
raylets) of one core each are started here; without, one node of two.
"""

import argparse
import time
from collections.abc import Sequence
from math import ceil, log2
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from isthmus import Client, Experiment
from isthmus.context import Call, Request
from isthmus.engines.base import Cluster
from isthmus.run.build import build

TASK = 1.7e-3  # seconds of the run's process for each client: a request out, an answer in
COPY = 0.5e-9  # seconds of the run's process for each byte of an answer, which it copies
LINK = 1.25e9  # bytes per second between two nodes: 10 Gbit/s


class CallCost(NamedTuple):
    """What a call takes, in seconds."""

    spread: float  # until every node has what all clients receive
    compute: float  # until the actors have computed all clients, one after another
    server: float  # of the run's process, to send requests and to take in answers

    @property
    def seconds(self) -> float:
        """How long it takes: actors and the run's process work at the same time."""
        return self.spread + max(self.compute, self.server)


def cost_call(
    clients: int, seconds: float, down: int, up: int, nodes: int, actors: int, link: float = LINK
) -> CallCost:
    """Cost a call: so many clients of so many seconds each; down and up are bytes of one client.

    A node that has what all receive passes it on, so that the number of those that have it doubles
    each time. Answers all come to one process, which is what is exhausted first.

    >>> cost = cost_call(10**6, 0.5, 800_000, 800_000, nodes=1000, actors=64_000)
    >>> f"{cost.spread:.3f} {cost.compute:.1f} {cost.server:.0f}"
    '0.006 8.0 2740'
    """
    spread = ceil(log2(nodes + 1)) * down / link
    each = TASK + up * (COPY + (1 / link if nodes > 1 else 0))
    return CallCost(spread, ceil(clients / actors) * seconds, clients * each)


def echo(client: Client, own: Any, w: Tensor) -> tuple[tuple[()], Tensor]:
    """Answer with as many numbers as it got."""
    return (), w + 1


def start_nodes(count: int) -> Any:
    """Start a cluster of nodes here."""
    from ray.cluster_utils import Cluster as Nodes

    node = {"num_cpus": 1, "object_store_memory": 400 << 20, "include_dashboard": False}
    nodes = Nodes(initialize_head=True, head_node_args=node)
    for _ in range(count - 1):
        nodes.add_node(**node)
    return nodes


def main(arguments: Sequence[str]) -> None:
    """Time calls of several sizes and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--cohorts", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--parameters", type=int, nargs="+", default=[100, 200_000, 2_000_000])
    parser.add_argument("--bytes", type=float, default=2e9, help="of answers in a call, at most")
    wanted = parser.parse_args(arguments)
    nodes = start_nodes(wanted.nodes) if wanted.nodes else None
    clients = max(wanted.cohorts)
    data = {"name": "synthetic", "samples": 20 * clients}
    experiment = Experiment(method="fedavg", data=data, clients=clients, partition="iid")
    cluster = Cluster(nodes.address if nodes else "local")
    setting = build(experiment, cluster=cluster).setting
    engine: Any = setting.engine
    table = Table(box=None)
    for title in ("clients", "parameters", "clock, s", "processor, s", "model, s"):
        table.add_column(title, justify="right")
    engine.prepare(setting)
    for parameters in wanted.parameters:
        for cohort in wanted.cohorts:
            if 4.0 * parameters * cohort > wanted.bytes:
                continue
            w = torch.randn(parameters)
            call = Call(echo, (w,), 0, "train", 0)
            requests = [Request(i, (), ()) for i in range(cohort)]
            for _ in range(2):  # the first one warms up
                began, worked = time.perf_counter(), time.process_time()
                for _, (_, reply) in engine.run(setting, call, iter(requests)):
                    assert len(reply) == parameters
                clock, processor = time.perf_counter() - began, time.process_time() - worked
            cost = cost_call(cohort, 0.0, w.nbytes, w.nbytes, max(1, wanted.nodes), engine.workers)
            figures = (f"{seconds:.3f}" for seconds in (clock, processor, cost.seconds))
            table.add_row(f"{cohort:,}", f"{parameters:,}", *figures)
    engine.close()
    if nodes:
        nodes.shutdown()
    Console().print(table)
