"""The plain loop: FedAvg, and SuPerFed-MM while it mixes, as one writes them by hand in PyTorch.

An nn.Module, autograd of the whole objective tensor by tensor, fused SGD; batches are gathered from
resident tensors, nothing is copied per batch. Clients are spread over processes that live as long
as the run, of one thread each, which share the data and the parameters.

It is the reference that the engine is measured against, and does the same work to the batch: the
same cohorts, examples, mini-batches in the same order, mixing coefficients and initial weights, all
of which come from the streams that an experiment's seed names. Its learning rate is constant.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.multiprocessing import get_context
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from benchmarks.networks import Settings, list_trained, load, make_optimiser, train
from isthmus import streams
from isthmus.context import RunContext
from isthmus.methods.superfed import SuPerFed


class PlainWork(NamedTuple):
    """What every process knows: settings, data and the places where parameters are exchanged."""

    build: Callable[[], nn.Module]
    settings: Settings
    seed: int
    mixes: SuPerFed | None  # None: FedAvg
    x: Tensor  # the clients' training examples, one client after another
    y: Tensor
    ends: list[int]  # where each client's examples end
    w: Tensor  # [P]: the shared model
    wf: Tensor  # [K, P]: what the cohort's clients make of it
    wl: Tensor  # [K, P]: the cohort's own models, before and after

    def data(self, i: int) -> tuple[Tensor, Tensor]:
        """Return client i's training examples."""
        rows = slice(self.ends[i - 1] if i else 0, self.ends[i])
        return self.x[rows], self.y[rows]

    def draw_orders(self, t: int, i: int) -> list[Tensor]:
        """Draw the order of client i's examples in each pass of round t."""
        shuffle = streams.stream(self.seed, "train batches", t, 0, i)
        n = len(self.data(i)[1])
        return [torch.from_numpy(shuffle.permutation(n)) for _ in range(self.settings.epochs)]

    def draw_mixing(self, t: int, i: int, steps: int) -> list[float]:
        """Draw the lambda of each of client i's steps in round t."""
        uniforms = streams.stream(self.seed, "train uniforms", t, 0, i).random(steps)
        return torch.as_tensor(uniforms, dtype=torch.float32).tolist()


class Plain:
    """Plays rounds of the plain loop in some processes, from round `first` on."""

    def __init__(
        self, setting: RunContext, build: Callable[[], nn.Module], processes: int, first: int = 0
    ):
        method, task, federation = setting.method, setting.task, setting.federation
        clients = [federation.split(i, "train") for i in range(len(federation))]
        cohort = torch.zeros(task.clients_per_round, task.model.size)
        self._setting = setting
        self._work = PlainWork(
            build,
            Settings(task.epochs, task.batch_size, task.lr_at(0), task.momentum, task.weight_decay),
            task.seed,
            mixes=method if isinstance(method, SuPerFed) else None,
            x=torch.cat([x for x, _ in clients]).share_memory_(),
            y=torch.cat([y for _, y in clients]).share_memory_(),
            ends=torch.tensor([len(y) for _, y in clients]).cumsum(0).tolist(),
            w=task.w0.clone().share_memory_(),
            wf=cohort.clone().share_memory_(),
            wl=cohort.clone().share_memory_(),
        )
        self.w, self.own = self._work.w, dict[int, Tensor]()
        self._t = first
        self._pool = ProcessPoolExecutor(
            processes, get_context("spawn"), initializer=start_process, initargs=(self._work,)
        )

    def round(self) -> None:
        """Play one round."""
        work, task = self._work, self._setting.task
        ids = streams.cohort(task.seed, self._t, task.clients, task.clients_per_round)
        if work.mixes:
            for place, i in enumerate(ids):
                own = self.own[i] if i in self.own else work.mixes.own(task, i).wl
                work.wl[place].copy_(own)
        list(self._pool.map(local, range(len(ids)), [self._t] * len(ids), ids))
        n = torch.tensor([float(len(work.data(i)[1])) for i in ids])
        self.w.copy_(n / n.sum() @ work.wf)
        if work.mixes:
            self.own.update((i, work.wl[place].clone()) for place, i in enumerate(ids))
        self._t += 1

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()


class Resident(NamedTuple):
    """What a process keeps from round to round."""

    work: PlainWork
    module: nn.Module
    own: nn.Module


resident: Resident  # of this process


def start_process(work: PlainWork) -> None:
    """Build what a process keeps."""
    global resident
    torch.set_num_threads(1)
    resident = Resident(work, work.build(), work.build())


def local(place: int, t: int, i: int) -> None:
    """Train client i in its place in the cohort of round t."""
    work, module, own = resident
    load(module, work.w)
    if work.mixes:
        load(own, work.wl[place])
        train_both(module, own, work, work.mixes, t, i)
        work.wl[place].copy_(parameters_to_vector(list_trained(own)).detach())
    else:
        train(module, *work.data(i), work.draw_orders(t, i), work.settings)
    work.wf[place].copy_(parameters_to_vector(list_trained(module)).detach())


def train_both(
    module: nn.Module, own: nn.Module, work: PlainWork, method: SuPerFed, t: int, i: int
) -> None:
    """Train the shared and the own model of a client on mixtures of the two."""
    (x, y), size = work.data(i), work.settings.batch_size
    batches = [rows for order in work.draw_orders(t, i) for rows in order.split(size)]
    names = [name for name, _ in module.named_parameters()]
    wf, wl = list(module.parameters()), list(own.parameters())
    wg = [parameter.detach().clone() for parameter in wf]
    ends = list(zip(wf, wl, strict=True))
    sgd = make_optimiser([*wf, *wl], work.settings)
    for rows, lam in zip(batches, work.draw_mixing(t, i, len(batches)), strict=True):
        sgd.zero_grad()
        mixed = [(1 - lam) * f + lam * o for f, o in ends]
        logits = functional_call(module, dict(zip(names, mixed, strict=True)), (x[rows],))
        near = sum((f - g).square().sum() for f, g in zip(wf, wg, strict=True))
        product = sum((f * o).sum() for f, o in ends)
        lengths = sum(f.square().sum() for f in wf) * sum(o.square().sum() for o in wl)
        orthogonal = product.square() / lengths
        objective = cross_entropy(logits, y[rows]) + method.mu * near + method.nu * orthogonal
        objective.backward()
        sgd.step()
