"""The way to a Ray cluster: one that runs, or one that is started on this machine for a while.

Ray ends the program, with a page of its own words, a minute after the head of its cluster is gone.
So it is asked for nothing before its head is known to listen, and left as soon as it does not.
"""

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.engines.base import Cluster
from isthmus.errors import ClusterLostError, IsthmusError
from isthmus.system.machine import count_cores

CONNECT_TIMEOUT_S = 5.0  # seconds for a head to answer
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
TOKEN_ADVICE = (
    "copy its head's ~/.ray/auth_token here, or set RAY_AUTH_TOKEN; for a cluster that has none, "
    "set RAY_AUTH_MODE=disabled"
)


class ClusterNode(NamedTuple):
    """A node that is alive, and the cores that it offers."""

    id: str
    name: str
    cores: int


class Connected:
    """A connection to a cluster."""

    def __init__(self, address: str, where: str, ours: bool = True, local: bool = False):
        self.address = address  # of the head
        self.where = where
        self.ours = ours  # whether closing it is our business
        self.local = local  # whether it was started here, and ends with its connection
        self.lost = False

    def check(self) -> None:
        """Raise an error if the cluster's head no longer listens."""
        if not self.lost and listens(self.address):
            return
        self.lost = True
        raise ClusterLostError(
            f"the head of the Ray cluster {self.where} is gone; restart it, or continue without "
            "the cluster"
        )

    def list_nodes(self) -> list[ClusterNode]:
        """List the nodes that are alive and have cores to compute on."""
        import ray

        self.check()
        found = []
        for node in ray.nodes():
            cores = int(node["Resources"].get("CPU", 0))
            if node["Alive"] and cores:
                name = f"{node['NodeManagerHostname']} ({node['NodeID'][:6]})"
                found.append(ClusterNode(node["NodeID"], name, cores))
        return found

    def close(self) -> None:
        """Leave the cluster; one that was started for this run ends."""
        import ray

        if self.ours and ray.is_initialized():
            ray.shutdown()


def connect(cluster: Cluster, cores: int = 0) -> Connected:
    """Connect to a cluster; without an address, starts one of so many cores on this machine."""
    if not find_spec("ray"):
        raise IsthmusError(
            "engine=ray needs Ray, which is not installed; pip install 'isthmus[ray]'"
        )
    address = cluster.address or os.environ.get("RAY_ADDRESS", "")
    local = address in ("", "local")
    _prepare(local)
    import ray

    if ray.is_initialized():  # by somebody else, who also ends it
        head = ray.get_runtime_context().gcs_address
        return Connected(head, f"at {head}", ours=False)
    inside = local or _is_inside(address)
    if not inside:
        _refuse_silence(address)
    with _connecting(address, inside):
        ray.init(
            address="local" if local else address,
            num_cpus=(cores or count_cores()) if local else None,
            include_dashboard=False if local else None,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
    # What a node has to say of its death is said in a note of ours, in a line.
    ray._private.worker._worker_logs_enabled = False
    head = ray.get_runtime_context().gcs_address
    return Connected(head, "on this machine" if local else f"at {address}", local=local)


def count_things(number: int, name: str) -> str:
    """Return a number and a noun, in the plural unless the number is 1.

    >>> count_things(1, "node"), count_things(2, "node")
    ('1 node', '2 nodes')
    """
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def listens(address: str) -> bool:
    """Whether a server listens at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _prepare(local: bool) -> None:
    """Make Ray use a token and report no usage, unless the environment says otherwise."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if local:
        os.environ.setdefault("RAY_worker_niceness", "0")  # else they give way to everybody
        if not _has_token():
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    if not ray.is_initialized():  # it may have been imported, and have looked, before
        raylet: Any = ray._raylet
        raylet.Config.initialize("")


def _has_token() -> bool:
    """Whether there is a token where Ray looks for it."""
    return any(map(os.environ.get, TOKENS)) or (Path.home() / ".ray" / "auth_token").exists()


def _find_outside(address: str) -> str:
    """Return the address by which other machines reach a head, as Ray does for this machine."""
    from ray.util import get_node_ip_address

    host, _, port = address.rpartition(":")
    return f"{get_node_ip_address()}:{port}" if host in LOOPBACK else address


def _is_inside(address: str) -> bool:
    """Whether a head listens on the loopback interface alone."""
    inside = address.rpartition(":")[0] in LOOPBACK
    return inside and listens(address) and not listens(_find_outside(address))


def _refuse_silence(address: str) -> None:
    """Refuse an address at which no cluster listens, for which Ray would wait for minutes."""
    if address == "auto":
        return
    if "://" in address or not address.rpartition(":")[2].isdigit():
        raise IsthmusError(
            f"--ray {address!r} is not the HOST:PORT of a head, as `ray start --head` prints it; "
            "for example --ray 10.0.0.1:6379"
        )
    if not listens(_find_outside(address)):
        raise IsthmusError(
            f"no Ray cluster listens at {address}; check that its head is running there and not "
            "behind a firewall (`ray start --head` starts one and prints its address)"
        )
    if os.environ["RAY_AUTH_MODE"] == "token" and not _has_token():
        raise IsthmusError(f"there is no token for the Ray cluster at {address}; {TOKEN_ADVICE}")


@contextmanager
def _connecting(address: str, inside: bool) -> Iterator[None]:
    """Hide what Ray's libraries print at each attempt, and turn Ray's errors into one line.

    A Ray that is started here, `inside`, listens on the loopback interface alone. Ray replaces
    127.0.0.1 by an address that others can reach, unless it believes to be on a system without
    clusters.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = before and not inside
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    except Exception as error:  # Ray raises all kinds, and some of no kind
        raise IsthmusError(_explain(error, address)) from None
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _explain(error: BaseException, address: str) -> str:
    """Return one line for what Ray says when it cannot connect."""
    reason = " ".join(str(error).split())[:500]
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    if "ersion mismatch" in reason:
        todo = "install the versions of Ray and Python that the cluster has"
    elif any("AuthToken" in str(cause) for cause in causes):
        reason, todo = "it refuses the token", TOKEN_ADVICE
    else:
        todo = "this machine must be one of its nodes, with its token; see docs/cluster.md"
    where = f"at {address}" if address else "on this machine"
    return f"Ray {where} cannot be used ({reason}); {todo}"
