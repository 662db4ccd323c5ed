"""What engines share: plans, random numbers drawn beforehand, one thread, errors that say where."""

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus import streams
from isthmus.client import Importance
from isthmus.context import Call, RunContext
from isthmus.data.federation import Federation
from isthmus.errors import IsthmusError
from isthmus.models.flat import Flat

SMALL_PARAMETERS = 5_000  # parameters up to which calling operations costs more than computing them


class ClientError(RuntimeError):
    """An exception in a client function, with its client, round and function."""


@dataclass(frozen=True)
class Cluster:
    """The Ray cluster that computes, and how its nodes get the data; no number depends on it."""

    address: str = ""  # host:port of its head; empty: RAY_ADDRESS, or a Ray of this machine's own
    send_data: bool = False  # data go there from here, and are not read from the data root there


class Plan(NamedTuple):
    """What a run wants of its engine, and what an engine may want to know of the run."""

    engine: str  # a name in `ENGINES`, or auto
    step: str  # eager, compiled or auto
    block: int  # clients that are stacked; 0: as many as stay in cache
    device: str
    rounds: int
    clients_per_round: int
    epochs: int
    batch_size: int
    sizes: Sequence[int]  # training examples of each client
    networks: Sequence[Flat]  # of a client, the common one first
    own: bool  # whether one of them is the user's, which may do what others do not
    unroll: int = 0  # steps of a compiled program; 0: as many as repay
    workers: int = 1  # processes that may compute; 0: as many as pay
    cluster: Cluster = Cluster()  # where `ray` finds them
    read_data: Callable[[], Federation] | None = None  # does so on another machine, by its name

    @property
    def steps(self) -> list[int]:
        """The mini-batches of each client in a pass."""
        return [steps_per_pass(n, self.batch_size) for n in self.sizes]

    @property
    def steps_per_round(self) -> float:
        """The mini-batches of all clients of a round, as they are on average."""
        steps = self.steps
        return self.clients_per_round * self.epochs * sum(steps) / len(steps)

    @property
    def parameters(self) -> int:
        """The parameters of all networks of a client."""
        return sum(network.size for network in self.networks)

    @property
    def random(self) -> bool:
        """Whether a network draws random numbers in training."""
        return any(network.random for network in self.networks)

    @property
    def mixes_examples(self) -> bool:
        """Whether examples of a batch influence each other in a network."""
        return any(network.mixes_examples for network in self.networks)


class RandomPart(NamedTuple):
    """The random part of one call for one client."""

    orders: NDArray[np.int64]  # [passes, n]: the order of the examples in each pass
    u: NDArray[np.float64]  # [passes * steps per pass, noise]


def draw(context: RunContext, call: Call, i: int, n: int) -> RandomPart:
    """Draw a client's shuffles and uniforms from the streams that bear its name."""
    method, task = context.method, context.task
    passes, steps = method.passes(task), steps_per_pass(n, task.batch_size)
    place = (call.t, call.turn, i)
    shuffle = streams.stream(task.seed, f"{call.purpose} batches", *place)
    uniform = streams.stream(task.seed, f"{call.purpose} uniforms", *place)
    return RandomPart(
        np.stack([shuffle.permutation(n) for _ in range(passes)]),
        uniform.random((passes * steps, method.noise(task))),
    )


def weigh_examples(context: RunContext, i: int, y: Tensor) -> Importance:
    """Return how much each of client i's training examples counts in its loss, 1 on average.

    By its weight in the data, where they have any; and with `balance = "classes"`, so much that
    all classes that the client has count alike.
    """
    given = context.federation.weights(i)
    if given is None and context.task.balance == "none":
        return ()
    weights = np.ones(len(y)) if given is None else given
    if context.task.balance == "classes":
        labels = y.numpy()
        totals = np.bincount(labels, weights, minlength=context.task.classes)[labels]
        weights = np.divide(weights, totals, out=np.zeros(len(y)), where=totals > 0)
    if not weights.sum() > 0:
        raise IsthmusError(
            f"all training examples of client {i} have weight 0; correct their weights, so that "
            "some count"
        )
    return torch.as_tensor(weights / weights.mean(), dtype=context.task.w0.dtype)


@contextmanager
def own_randomness(context: RunContext, call: Call, i: int) -> Iterator[None]:
    """Draw what random layers need, such as dropout, from a stream that bears the client's name."""
    task = context.task
    seed = streams.seed_of(task.seed, f"{call.purpose} layers", call.t, call.turn, i)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed looks for devices too
        yield


def split_order(order: Tensor, batch_size: int, mixes_examples: bool) -> list[Tensor]:
    """Cut a pass into batches.

    A single example at its end has no statistics: where examples of a batch are normalised
    together, the first one of the pass joins it.
    """
    batches = list(torch.split(order, batch_size))
    if mixes_examples and len(batches[-1]) == 1:
        batches[-1] = torch.cat([batches[-1], order[:1]])
    return batches


def steps_per_pass(n: int, batch_size: int) -> int:
    """Count a pass's mini-batches; the last may be short."""
    return -(-n // batch_size)


@contextmanager
def wrap_errors(call: Call, who: str) -> Iterator[None]:
    """Wrap what a client function raises in an error that names the client and the round."""
    try:
        yield
    except IsthmusError:
        raise
    except Exception as error:
        function = getattr(call.function, "__qualname__", type(call.function).__qualname__)
        raise ClientError(
            f"{who}, round {call.t + 1}, {function}: {type(error).__name__}: {error}"
        ) from error


@cache
def keep_memory() -> None:
    """Keep freed memory for the next step, where the C library is glibc.

    By default it gives every large block back to the system as soon as it is freed, and a step
    frees several: the system then spends as much time on clearing pages as the step on computing.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        trim, mapped = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
        libc.mallopt(trim, 1 << 30)
        libc.mallopt(mapped, 1 << 30)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: with more, sums would depend on how many there are.

    Meanwhile numbers below the least normal one, 1e-38 in single precision, count as zero. What
    dies away, as the momentum of a client that has learned its examples, passes through them, and
    a processor may take a hundred times as long for each.
    """
    keep_memory()
    threads, flushes = torch.get_num_threads(), flushes_denormals()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushes)
        torch.set_num_threads(threads)


def flushes_denormals() -> bool:
    """Whether numbers below the least normal one count as zero."""
    least = torch.full((1,), torch.finfo(torch.float32).tiny, device="cpu")
    return not bool(least.mul(0.5))
