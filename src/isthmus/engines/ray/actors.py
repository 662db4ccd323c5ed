"""Resident actors on the nodes of a Ray cluster, one for each core, one thread each.

An actor holds what a worker process of `isthmus.engines.workers` holds, and answers with the same
messages: names, plain values and tensors. Ray pickles no function and no class of ours by value:
it gets them by their names, and messages as bytes and arrays.

A node has the data once, for all of its actors: read from its own files, of which those that are
mapped into memory stay where they are, or sent there once; then they are in Ray's object store,
which all processes of a node map. What all clients of a call receive goes to each node once.
"""

import platform
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray.exceptions import GetTimeoutError, RayError

from isthmus.context import Call, Request, RunContext
from isthmus.data.federation import Federation
from isthmus.engines import messages
from isthmus.engines.base import ClientError
from isthmus.engines.compiled import Compiled, has_compiler
from isthmus.engines.loop import Loop
from isthmus.engines.profile import MESSAGES, Profile
from isthmus.engines.ray.connection import ClusterNode, Connected, count_things
from isthmus.errors import IsthmusError

PULSE = 1.0  # seconds between two looks at whether the cluster's head is still there
PATIENCE = 60.0  # seconds for an answer to arrive that is ready
TRIES = 3  # actors that may end at one client: whole nodes may, one after another
START, LONGEST_START = 20.0, 600.0  # seconds: for all actors to begin, and for any of them
STARTS = 5  # actors that may end before they begin, in a row
VERSIONS = ("isthmus", "torch", "numpy")  # of which another one may compute other bits


class Parcel(NamedTuple):
    """A message for another machine: a head, and the memory of its tensors."""

    head: bytes
    parts: list[NDArray[np.uint8]]


class NodeFacts(NamedTuple):
    """What is to be known of a node before it computes."""

    error: str  # why it cannot; empty: it can
    digest: str  # of its data; empty: it waits for them
    versions: tuple[str, ...]
    processor: str
    compiles: bool


def pack(value: Any, names: "dict[int, str] | None" = None, by_file: bool = False) -> Parcel:
    """Packs a value; what both sides know, by the object's id, is only named."""
    head, buffers = messages.dump(value, names or {}, by_file)
    if b"__main__" in head:
        raise messages.CannotSend(
            "it is defined in the script that runs; move it to a module that nodes can import"
        )
    return Parcel(head, [np.frombuffer(buffer, np.uint8) for buffer in buffers])


def unpack(parcel: Parcel, known: "dict[str, Any] | None" = None, copy: bool = True) -> Any:
    """Reads a value; without `copy` its arrays stay in Ray's memory, and cannot be written."""
    parts = [_copy(part) for part in parcel.parts] if copy else parcel.parts
    return messages.load(parcel.head, known or {}, parts)


def _copy(part: NDArray[np.uint8]) -> NDArray[np.uint8]:
    own: NDArray[np.uint8] = torch.empty(part.nbytes, dtype=torch.uint8).numpy()  # aligned
    own[:] = part
    return own


def list_versions() -> tuple[str, ...]:
    """Lists the versions here of what computes."""
    return tuple(metadata.version(name) for name in VERSIONS)


class ClientActor:
    """One process of a cluster, which computes clients one after another."""

    def __init__(self) -> None:
        self._number = -1  # of the call that it knows
        self._call: Call | None = None

    def locate(self) -> str:
        """Says which node it is on."""
        node: str = ray.get_runtime_context().get_node_id()
        return node

    def place(self, read_data: Parcel | None) -> tuple[NodeFacts, Parcel | None]:
        """Reads the data for all actors of its node, if it is to, and says what that is like."""
        error, digest, data = "", "", None
        if read_data is not None:
            try:
                federation: Federation = unpack(read_data)()
                digest, data = federation.digest(), pack(federation.pack(), by_file=True)
            except (IsthmusError, ImportError, OSError) as problem:
                error = str(problem)
        processor = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
        return NodeFacts(error, digest, list_versions(), processor, has_compiler()), data

    def prepare(self, setup: Parcel, data: Parcel) -> None:
        """Takes what stays the same during a run."""
        method, task, compiled, watched, dtype = unpack(setup)
        torch.set_default_dtype(dtype)
        nobody: Any = None  # the engine is the run's
        self._context = RunContext(method, task, unpack(data, copy=False), nobody)
        self._known = {"method": method, "task": task}
        self._loop = Loop(compiled=compiled)
        self._loop.profile = Profile() if watched else None

    def compute(self, number: int, call: Parcel, request: Parcel) -> Parcel:
        """Runs the function of a call for one client."""
        try:
            if number != self._number:
                self._call, self._number = unpack(call, self._known), number
            assert self._call is not None
            wanted = unpack(request, self._known)
            answer: Any = self._loop.answer(self._context, self._call, wanted)
            return pack(answer)
        except Exception as error:  # whatever it is, it is raised in the run's process
            if not isinstance(error, IsthmusError):
                error.add_note("".join(traceback.format_exception(error)))
            with suppress(messages.CannotSend):
                return pack(error)
            return pack(ClientError(f"{type(error).__name__}: {error}"))


class Member:
    """An actor, and the node that it is on."""

    def __init__(self, handle: Any):
        self.handle = handle
        self.node = ""  # its id, once it is known
        self.where = ""


class ActorPool:
    """The actors of one run: as many as the cluster has cores, also when that changes."""

    def __init__(
        self,
        connected: Connected,
        context: RunContext,
        compiled: Compiled | None,
        read_data: Callable[[], Federation] | None,
        profile: Profile | None,
        most: int,
    ):
        self.context = context
        self.notes: list[str] = []
        self._connected = connected
        self._compiled = compiled
        self._profile = profile
        self._most = most
        self._begun = False  # whether a client has been computed
        self._failures = 0  # of actors to start, in a row
        self._number = 0  # of calls
        self._nodes: dict[str, ClusterNode] = {}
        self._data: dict[str, Any] = {}  # by node, a reference; None: it cannot be used
        self._facts: dict[str, NodeFacts] = {}
        self._waiting: dict[str, list[Member]] = {}  # by node, until its data are placed
        self._members: list[Member] = []
        self._idle: deque[Member] = deque()
        self._busy: dict[Any, tuple[Member, Request]] = {}
        self._due: dict[Any, Callable[[Any], None]] = {}  # what follows when something is ready
        self._names = {id(context.method): "method", id(context.task): "task"}
        connected.check()
        try:
            setup = (context.method, context.task, compiled, profile is not None)
            self._setup = ray.put(pack((*setup, torch.get_default_dtype())))
            self._sent = ray.put(pack(context.federation.pack())) if read_data is None else None
            self._reading = None if read_data is None else pack(read_data)
        except messages.CannotSend as error:
            raise IsthmusError(
                f"the method or model cannot be sent to the cluster's nodes ({error}); expected "
                "what a module defines that they can import; or set engine=loop"
            ) from None
        self._fill()

    def prepare(self) -> None:
        """Waits until all actors can compute, or some where others are busy for long."""
        began = time.monotonic()
        while self._due and (not self._idle or time.monotonic() < began + START):
            self._wait()
            if not self._idle and time.monotonic() > began + LONGEST_START:
                raise IsthmusError(
                    f"no core of the Ray cluster {self._connected.where} became free in "
                    f"{LONGEST_START / 60:.0f} minutes; expected one; who else is using it?"
                )

    def describe_now(self) -> str:
        """Says how many nodes and actors there are, and how many of these compute."""
        used = {member.node for member in [*self._members] if member.node}
        return (
            f"ray {self._connected.where}: {len(used)} of {len(self._nodes)} nodes, "
            f"{len(self._members)} actors, {len(self._busy)} computing"
        )

    def run(self, call: Call, requests: Iterator[Request]) -> Iterator[tuple[int, Any]]:
        """Yields (client, what the function returned), in the order in which they come."""
        self._fill()
        parcel = self._measure(pack)(call, self._names)
        self._number += 1
        shared, again, ends = ray.put(parcel), deque[Request](), Counter[int]()

        def dispatch() -> None:
            while self._idle:
                request = again.popleft() if again else next(requests, None)
                if request is None:
                    return
                member = self._idle.popleft()
                sent = self._measure(pack)(request, self._names)
                ref = member.handle.compute.remote(self._number, shared, sent)
                self._busy[ref] = member, request

        try:
            dispatch()
            while self._busy or again or not self._idle:
                answers = []
                for ref in self._wait():
                    member, request = self._busy.pop(ref)
                    answer = self._fetch(ref)
                    if isinstance(answer, Parcel):
                        self._idle.append(member)
                        answers.append((request, answer))
                        continue
                    self._drop(member)
                    self._note_end(call, request, member, ends)
                    again.append(request)
                dispatch()  # before anything is done with what has come
                for request, answer in answers:
                    yield request.i, self._open(answer)
        finally:
            # A caller that stops early leaves actors computing: they are free when they have ended.
            for ref, (member, _) in self._busy.items():
                self._due[ref] = partial(self._admit, member)
            self._busy.clear()

    def close(self) -> None:
        """Ends all actors."""
        if not self._connected.lost:
            for member in self._members:
                with suppress(RayError):
                    ray.kill(member.handle)
        for things in (self._members, self._idle, self._busy, self._due):
            things.clear()

    def _open(self, parcel: Parcel) -> Any:
        answer = self._measure(unpack)(parcel)
        if isinstance(answer, BaseException):
            raise answer
        self._begun = True
        self.notes += answer.notes
        if self._profile is not None:
            self._profile.add(answer.seconds)
        return answer.result

    def _measure(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self._profile is None else self._profile.measure(MESSAGES, function)

    def _wait(self) -> list[Any]:
        """Waits for something to be ready; gives the answers, and does what follows all else."""
        waiting = [*self._busy, *self._due]
        if not waiting:
            self._fill()
            waiting = [*self._due]
        if not waiting:
            raise IsthmusError(
                f"the Ray cluster {self._connected.where} has no node that can compute; expected "
                "at least one with a core; start one with `ray start --address`"
            )
        ready, _ = ray.wait(waiting, num_returns=1, timeout=PULSE)
        if not ready:
            self._connected.check()
            return []
        if len(waiting) > 1:
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for ref in ready:
            if ref in self._due:
                self._due.pop(ref)(self._fetch(ref))
        return [ref for ref in ready if ref in self._busy]

    def _fetch(self, ref: Any) -> Any:
        """Gives what a reference stands for, or the error of Ray that took its place."""
        try:
            return ray.get(ref, timeout=PATIENCE)
        except (RayError, GetTimeoutError) as error:
            self._connected.check()
            return error

    def _fill(self) -> None:
        """Looks which nodes are there, and starts as many actors as they have cores."""
        nodes = {node.id: node for node in self._connected.list_nodes()}
        for id in self._nodes.keys() - nodes.keys():
            self.notes.append(f"{self._name_node(id)} is gone")
            self._facts.pop(id, None)
            self._data.pop(id, None)
        for id in nodes.keys() - self._nodes.keys() if self._begun else ():
            offered = count_things(nodes[id].cores, "core")
            self.notes.append(f"node {nodes[id].name} has joined, with {offered}")
        self._nodes = nodes
        cores = sum(node.cores for node in nodes.values())
        wanted = min(cores, self._most) if self._most else cores
        for _ in range(wanted - len(self._members)):
            kind = ray.remote(ClientActor).options(
                num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD"
            )
            member = Member(kind.remote())
            self._members.append(member)
            self._due[member.handle.locate.remote()] = partial(self._prepare_member, member)

    def _prepare_member(self, member: Member, node: Any) -> None:
        """Prepares an actor that has begun; the first one of a node places its data before."""
        if isinstance(node, RayError):
            self._give_up(member, node)
            return
        member.node, member.where = node, self._name_node(node)
        if node in self._waiting:
            self._waiting[node].append(member)
        elif node not in self._data:
            self._waiting[node] = []
            place = member.handle.place.options(num_returns=2)
            facts, data = place.remote(self._reading)
            self._due[facts] = partial(self._judge, member, data)
        elif self._data[node] is not None:
            ref = member.handle.prepare.remote(self._setup, self._data[node])
            self._due[ref] = partial(self._admit, member)

    def _judge(self, member: Member, data: Any, facts: Any) -> None:
        """Decides whether a node may compute, when one of its actors has said what it is like."""
        id, waiting = member.node, self._waiting.pop(member.node)
        if isinstance(facts, RayError):
            self._give_up(member, facts)
        else:
            problem = self._find_problem(facts)
            if problem and not self._begun:
                raise IsthmusError(f"{member.where}: {problem}")
            if problem:
                self.notes.append(f"{member.where} is not used: {problem}")
            self._note_processor(member.where, facts)
            self._facts[id] = facts
            self._data[id] = None if problem else self._sent or data
            waiting.append(member)
        for each in waiting:
            self._prepare_member(each, id)

    def _find_problem(self, facts: NodeFacts) -> str:
        if facts.versions != list_versions():
            theirs, ours = (
                ", ".join(map(" ".join, zip(VERSIONS, versions, strict=True)))
                for versions in (facts.versions, list_versions())
            )
            return f"it has {theirs}; expected {ours}, as here; install the same"
        if self._compiled is not None and not facts.compiles:
            return (
                "steps are compiled, and it has no C++ compiler; expected g++ or clang++ on its "
                "path; install one, or set step=eager"
            )
        if facts.error:
            return f"{facts.error}; or send the data there with --send-data"
        here = self.context.federation.digest()
        if facts.digest not in ("", here):
            return (
                f"its data have digest {facts.digest}; expected {here}, as here; copy the files "
                "there, or send the data with --send-data"
            )
        return ""

    def _name_node(self, id: str) -> str:
        node = self._nodes.get(id)
        return f"node {node.name if node else id[:6]}"

    def _note_processor(self, where: str, facts: NodeFacts) -> None:
        others = {other.processor for other in self._facts.values()} - {facts.processor}
        if others:
            self.notes.append(
                f"{where} has a processor of another kind ({facts.processor}; others: "
                f"{', '.join(sorted(others))}): the last bits may depend on who computes"
            )

    def _admit(self, member: Member, outcome: Any) -> None:
        """Lets an actor compute that is ready to."""
        if not isinstance(outcome, RayError):
            self._failures = 0
            self._idle.append(member)
        else:
            self._give_up(member, outcome)

    def _give_up(self, member: Member, error: RayError) -> None:
        """Replaces an actor that could not begin, unless that happens again and again."""
        self._failures += 1
        if self._failures >= STARTS:
            raise IsthmusError(
                f"{STARTS} actors ended before they began ({_shorten(error)}); expected nodes with "
                "the same isthmus and enough memory; look into Ray's logs there"
            )
        self._drop(member)

    def _drop(self, member: Member) -> None:
        """Gives an actor up that has ended, or cannot be reached."""
        with suppress(RayError, ValueError):
            ray.kill(member.handle)
        with suppress(ValueError):
            self._members.remove(member)
        self._fill()

    def _note_end(self, call: Call, request: Request, member: Member, ends: Counter[int]) -> None:
        ended = f"client {request.i}, round {call.t + 1}: its actor on {member.where} ended"
        ends[request.i] += 1
        if ends[request.i] >= TRIES:
            raise ClientError(
                f"{ended}, for the {TRIES}rd time; expected an answer; look for what kills "
                "processes there, such as too little memory"
            )
        self.notes.append(f"{ended}; computed again")


def _shorten(error: RayError) -> str:
    """Gives the line of Ray's message that says most: the last one."""
    lines: Iterable[str] = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ([type(error).__name__, *lines])[-1][:300]
