"""Resident actors on the nodes of a Ray cluster, one for each core, one thread each.

An actor holds what a worker process of `isthmus.engines.workers` holds, and answers with the same
messages: names, plain values and tensors. Ray pickles no function and no class of ours by value:
it gets them by their names, and messages as bytes and arrays.

A node has the data once, for all of its actors: read from its own files, of which those that are
mapped into memory stay where they are, or sent there once; then they are in Ray's object store,
which all processes of a node map. What all clients of a call receive goes to each node once.

Actors are kept as processes are, by `isthmus.engines.pool`. `ray.util.ActorPool` cannot wait for
actors that begin beside those that compute, nor say whose call an ended actor had; and with
`max_restarts` an actor whose node is gone waits, with its client, for a core that may never come.
"""

import platform
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from isthmus.context import Call, Request, RunContext
from isthmus.data.federation import Federation
from isthmus.engines import messages
from isthmus.engines.base import ClientError
from isthmus.engines.compiled import Compiled, has_compiler
from isthmus.engines.loop import Loop
from isthmus.engines.messages import Message
from isthmus.engines.pool import Ended, Pool
from isthmus.engines.profile import Profile
from isthmus.engines.ray.connection import ClusterNode, Connected, count_things
from isthmus.errors import IsthmusError

HEARTBEAT_S = 1.0  # between two looks at whether the cluster's head is still there
ANSWER_TIMEOUT_S = 60.0  # for an answer to arrive that is ready
START_S, START_TIMEOUT_S = 20.0, 600.0  # for all actors to begin, and for any of them
MOST_FAILED_STARTS = 5  # actors that may end before they begin, in a row
VERSIONS = ("isthmus", "torch", "numpy")  # of which another one may compute other bits


class NodeFacts(NamedTuple):
    """What is to be known of a node before it computes."""

    error: str  # why it cannot; empty: it can
    digest: str  # of its data; empty: they are sent there
    versions: tuple[str, ...]
    processor: str
    compiles: bool


def pack(value: Any, names: Mapping[int, str] = {}, by_file: bool = False) -> Message:
    """Write a value for other machines."""
    message = messages.write(value, names, by_file=by_file)
    if b"__main__" in message.head:
        raise messages.CannotSend(
            "it is defined in the script that runs; move it to a module that nodes can import"
        )
    return message


def list_versions() -> tuple[str, ...]:
    """List the versions here of what computes."""
    return tuple(metadata.version(name) for name in VERSIONS)


def inspect_node(read_data: Message | None) -> tuple[NodeFacts, Message | None]:
    """Describe this node, and read the data for all of its actors where they lie on it."""
    error, digest, data = "", "", None
    if read_data is not None:
        try:
            federation: Federation = messages.read(read_data, {})()
            digest, data = federation.digest(), pack(federation.pack(), by_file=True)
        except (IsthmusError, ImportError, OSError) as problem:
            error = str(problem)
    processor = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return NodeFacts(error, digest, list_versions(), processor, has_compiler()), data


class ClientActor:
    """One process of a cluster, which computes clients one after another."""

    def __init__(self, setup: Message, data: dict[str, list[Any]]):
        method, task, compiled, watched, dtype = messages.read(setup, {})
        torch.set_default_dtype(dtype)
        self._node: str = ray.get_runtime_context().get_node_id()
        nobody: Any = None  # the engine is the run's
        self._ready = bool(data.get(self._node))
        if self._ready:
            federation = messages.read(ray.get(data[self._node][0]), {}, keep=False)
            self._context = RunContext(method, task, federation, nobody)
        self._known = {"method": method, "task": task}
        self._loop = Loop(compiled=compiled)
        self._loop.profile = Profile(watched)
        self._number = -1  # of the call that it knows
        self._call: Call | None = None

    def begin(self) -> tuple[str, bool]:
        """Return the node that it is on, and whether it has the data."""
        return self._node, self._ready

    def compute(self, number: int, call: Message, request: Message) -> Message:
        """Run the function of a call for one client."""
        try:
            if number != self._number:
                self._call, self._number = messages.read(call, self._known), number
            assert self._call is not None
            wanted = messages.read(request, self._known)
            answer: Any = self._loop.answer(self._context, self._call, wanted)
            return pack(answer)
        except Exception as error:  # whatever it is, it is raised in the run's process
            if not isinstance(error, IsthmusError):
                error.add_note("".join(traceback.format_exception(error)))
            with suppress(messages.CannotSend):
                return pack(error)
            return pack(ClientError(f"{type(error).__name__}: {error}"))


class Actor:
    """An actor, and the id of the node that it is on, once that is known."""

    def __init__(self, handle: Any):
        self.handle = handle
        self.node = ""


class ActorPool(Pool):
    """The actors of one run: as many as the cluster has cores, also when that changes."""

    tries = 3  # whole nodes may end, one after another

    def __init__(
        self,
        connected: Connected,
        context: RunContext,
        compiled: Compiled | None,
        read_data: Callable[[], Federation] | None,
        profile: Profile,
        most: int,
    ):
        Pool.__init__(self, context, profile)
        self._connected = connected
        self._compiled = compiled
        self._most = most
        self._begun = False  # whether a client has been computed
        self._failures = 0  # of actors to start, in a row
        self._number = 0  # of calls
        self._nodes: dict[str, ClusterNode] = {}
        self._processors: dict[str, str] = {}  # by node
        self._data: dict[str, list[Any]] = {}  # by node, one reference; none: it cannot be used
        self._actors: list[Actor] = []
        self._starting: dict[Any, Actor] = {}  # by what to wait for
        connected.check()
        try:
            setup = (context.method, context.task, compiled, profile.watching)
            self._setup = ray.put(pack((*setup, torch.get_default_dtype())))
            self._sent = ray.put(pack(context.federation.pack())) if read_data is None else None
            self._reading = None if read_data is None else pack(read_data)
        except messages.CannotSend as error:
            raise IsthmusError(
                f"the method or model cannot be sent to the cluster's nodes ({error}); define it "
                "in a module that they can import, or set engine=loop"
            ) from None
        self._fill()

    def prepare(self) -> None:
        """Wait until all actors can compute, or some where others are busy for long."""
        began = time.monotonic()
        while self._starting and (not self.idle or time.monotonic() < began + START_S):
            self.receive()
            if not self.idle and time.monotonic() > began + START_TIMEOUT_S:
                raise IsthmusError(
                    f"no core of the Ray cluster {self._connected.where} became free in "
                    f"{START_TIMEOUT_S / 60:.0f} minutes; find out what else is using it"
                )

    def describe_now(self) -> str:
        """Return how many nodes and actors there are, and how many of these compute."""
        used = {actor.node for actor in [*self._actors] if actor.node}
        return (
            f"ray {self._connected.where}: {len(used)} of {len(self._nodes)} nodes, "
            f"{len(self._actors)} actors, {len(self.busy)} computing"
        )

    def write_call(self, call: Call) -> Any:
        """Put the message of a call where each node gets it once."""
        self._fill()
        self._number += 1
        return ray.put(self.measure(pack)(call, self.names))

    def send(self, worker: Actor, call: Any, request: Request) -> Any:
        """Send a request, and the reference of its call."""
        sent = self.measure(pack)(request, self.names)
        return worker.handle.compute.remote(self._number, call, sent)

    def receive(self) -> list[tuple[Any, Message | Ended]]:
        """Wait for something to be ready; actors that have begun become idle."""
        waiting = [*self.busy, *self._starting]
        if not waiting:
            self._fill()
            waiting = [*self._starting]
        if not waiting:
            raise IsthmusError(
                f"the Ray cluster {self._connected.where} has no node that can compute; start one "
                "with `ray start --address`"
            )
        ready, _ = ray.wait(waiting, num_returns=1, timeout=HEARTBEAT_S)
        if not ready:
            self._connected.check()
        elif len(waiting) > 1:
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        answers: list[tuple[Any, Message | Ended]] = []
        for ref in ready:
            outcome = self._fetch(ref)
            if ref in self._starting:
                self._admit(self._starting.pop(ref), outcome)
            elif isinstance(outcome, RayError):
                node = self._name_node(self.busy[ref][0].node)
                answers.append((ref, Ended(f"its actor on {node} ended")))
            else:
                answers.append((ref, outcome))
        return answers

    def read(self, worker: Actor, message: Message) -> Any:
        """Return the answer, or the exception, that a message holds."""
        self._begun = True
        return self.measure(messages.read)(message, {})

    def replace(self, worker: Actor) -> None:
        """Give an actor up that has ended, or cannot be reached; start what the cores allow."""
        with suppress(RayError, ValueError):
            ray.kill(worker.handle)
        self._actors.remove(worker)
        self._fill()

    def abandon(self) -> None:
        """Wait for actors that are computing as for those that begin."""
        self._starting |= {ref: actor for ref, (actor, _) in self.busy.items()}
        self.busy.clear()

    def close(self) -> None:
        """End all actors."""
        if not self._connected.lost:
            for actor in self._actors:
                with suppress(RayError):
                    ray.kill(actor.handle)
        for things in (self._actors, self.idle, self.busy, self._starting):
            things.clear()

    def _fetch(self, ref: Any) -> Any:
        """Return what a reference stands for, or the error of Ray that took its place."""
        try:
            return ray.get(ref, timeout=ANSWER_TIMEOUT_S)
        except RayError as error:
            self._connected.check()
            return error

    def _fill(self) -> None:
        """Look which nodes are there, and start as many actors as they have cores."""
        nodes = {node.id: node for node in self._connected.list_nodes()}
        for id in self._nodes.keys() - nodes.keys():
            self.notes.append(f"{self._name_node(id)} is gone")
            self._processors.pop(id, None)
            self._data.pop(id, None)
        self._nodes = nodes
        inspect = ray.remote(num_cpus=0, num_returns=2, max_retries=0)(inspect_node)
        inspected = []
        for id in [id for id in nodes if id not in self._data]:
            there = inspect.options(scheduling_strategy=NodeAffinitySchedulingStrategy(id, False))
            inspected.append((id, *there.remote(self._reading)))
        for id, ref, data in inspected:
            while not ray.wait([ref], timeout=HEARTBEAT_S)[0]:
                self._connected.check()
            facts = self._fetch(ref)
            if isinstance(facts, RayError) and not isinstance(facts, RayTaskError):
                del nodes[id]  # it is just ending, or beginning: it is looked at again later
                continue
            if self._begun:
                offered = count_things(nodes[id].cores, "core")
                self.notes.append(f"{self._name_node(id)} has joined, with {offered}")
            usable = self._judge(id, facts)
            self._data[id] = [data if self._sent is None else self._sent] if usable else []
        cores = sum(node.cores for node in nodes.values())
        wanted = min(cores, self._most) if self._most else cores
        for _ in range(wanted - len(self._actors)):
            kind = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(ClientActor)
            actor = Actor(kind.remote(self._setup, self._data))
            self._actors.append(actor)
            self._starting[actor.handle.begin.remote()] = actor

    def _admit(self, actor: Actor, outcome: Any) -> None:
        """Have an actor compute that has begun, if its node can be used."""
        if isinstance(outcome, RayError):
            self._failures += 1
            if self._failures >= MOST_FAILED_STARTS:
                raise IsthmusError(
                    f"{MOST_FAILED_STARTS} actors ended before they began ({_shorten(outcome)}); "
                    "look into Ray's logs on the nodes, which need the same isthmus and enough "
                    "memory"
                )
            self.replace(actor)
            return
        self._failures = 0
        ready = True  # after a call that was abandoned
        if not isinstance(outcome, Message):
            actor.node, ready = outcome
        if ready:
            self.idle.append(actor)
        elif self._data.get(actor.node) != []:  # its node was not known when it was started
            self.replace(actor)

    def _judge(self, id: str, facts: Any) -> bool:
        """Whether a node can be used; before the first round an error says why not."""
        where, problem = self._name_node(id), self._find_problem(facts)
        if problem and not self._begun:
            raise IsthmusError(f"{where}: {problem}")
        if problem:
            self.notes.append(f"{where} is not used: {problem}")
            return False
        others = {*self._processors.values()} - {facts.processor}
        if others:
            self.notes.append(
                f"{where} has a processor of another kind ({facts.processor}; others: "
                f"{', '.join(sorted(others))}): the last bits may depend on who computes"
            )
        self._processors[id] = facts.processor
        return True

    def _find_problem(self, facts: NodeFacts | RayTaskError) -> str:
        if isinstance(facts, RayTaskError):
            return f"it cannot be asked ({_shorten(facts)}); look into Ray's logs there"
        if facts.versions != list_versions():
            theirs, ours = (
                ", ".join(map(" ".join, zip(VERSIONS, versions, strict=True)))
                for versions in (facts.versions, list_versions())
            )
            return f"it has {theirs}, and this machine {ours}; install the same versions"
        if self._compiled is not None and not facts.compiles:
            return (
                "steps are compiled, and it has no C++ compiler on its path; install g++ or "
                "clang++, or set step=eager"
            )
        if facts.error:
            return f"{facts.error}; or send the data there with --send-data"
        here = self.context.federation.digest()
        if facts.digest not in ("", here):
            return (
                f"its data have digest {facts.digest} instead of {here}; copy the files there, or "
                "send the data with --send-data"
            )
        return ""

    def _name_node(self, id: str) -> str:
        node = self._nodes.get(id)
        return f"node {node.name if node else id[:6]}"


def _shorten(error: RayError) -> str:
    """Return the line of Ray's message that says most: the last one."""
    lines: Iterable[str] = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ([type(error).__name__, *lines])[-1][:300]
