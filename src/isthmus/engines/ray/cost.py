"""What a call costs on a cluster: seconds and bytes, on paper; docs/cluster.md derives it."""

from math import ceil, log2
from typing import NamedTuple

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
