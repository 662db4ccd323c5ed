"""One client, as a client function sees it.

A client function is written for one client. An engine runs it for one client after another, or for
a block of clients at once under `torch.func.vmap`; then the client's data are padded to a common
size, and the masks below hide that from the author.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from isthmus import tree
from isthmus.errors import IsthmusError
from isthmus.metrics.score import Tally, tally
from isthmus.models.descent import (
    Shares,
    collect_statistics_updates,
    find_shares,
    is_blended,
    train,
    uniform_rates,
)
from isthmus.models.flat import Flat, split_evenly
from isthmus.task import Task

if TYPE_CHECKING:
    from isthmus.method import Method

Vectors = Any  # one vector [P], or a tuple of vectors
# How much each example counts in the loss, 1 on average; empty: all alike.
Importance = Tensor | tuple[()]
StepFunction = Callable[[Any, "Batch"], Any]  # step(carry, batch) -> carry

GATHER_ROWS = 1024  # examples that are gathered at a time, at least one batch


class Point(NamedTuple):
    """A model and its place on the method's path; or a path: many of both, stacked."""

    at: Tensor  # [D], or [L, D]: lambda, or coordinates in a simplex
    w: Tensor  # [P], or [L, P]


class PathSelection(NamedTuple):
    """A path that a point was chosen on."""

    path: Point
    chosen: Tensor  # which point, without axes
    point: Point


class Examples(NamedTuple):
    """One part of a client's data; `weight` is 1 for real rows, 0 for padding, None if all real."""

    x: Tensor
    y: Tensor
    weight: Tensor | None = None
    importance: Importance = ()


class Batch(NamedTuple):
    """One mini-batch and the uniform random numbers that belong to its step."""

    x: Tensor
    y: Tensor
    u: Tensor  # [method.noise(task)], uniform on [0, 1)
    rows: Tensor  # [B]: which of the training examples they are
    importance: Importance = ()
    weight: Tensor | None = None  # as in Examples

    def mean(self, values: Tensor) -> Tensor:
        """Average values [B, ...] over the real examples."""
        if self.weight is None:
            return values.mean(0)
        return torch.einsum("b,b...->...", self.weight, values) / self.weight.sum().clamp(min=1)

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """Average the cross-entropy of logits [B, C] over the real examples, as each counts."""
        if isinstance(self.importance, Tensor):
            return self.mean(self.importance * cross_entropy(logits, self.y, reduction="none"))
        if self.weight is None:
            return cross_entropy(logits, self.y)
        return self.mean(cross_entropy(logits, self.y, reduction="none"))


class Steps(NamedTuple):
    """All steps that one call may take, drawn before it runs: rows of the training part."""

    rows: list[Tensor]  # per step, [B]; the last of a pass may be shorter
    u: Tensor  # [steps, D]
    per_pass: int
    weight: Tensor | list[Tensor] | None = None  # per step, [B]; None if nothing is padded


class Client:
    """What a client function may ask of the client that runs it."""

    def __init__(
        self,
        method: "Method",
        task: Task,
        t: int,
        *,
        part: Callable[[str], Examples],
        n: Tensor,
        steps: Tensor,
        plan: Callable[[], Steps],
        own: Any,
        gradient: Callable[[Callable[[Vectors], Tensor], Vectors], Vectors],
        fold: Callable[[StepFunction, Any, Iterator[Batch]], Any],
        choice: int | None = None,
        kind: int = 0,
    ):
        self.task = task
        self.model: Flat = task.model
        self._networks = (task.model, *task.others)
        self.t = t
        self.rounds = task.rounds
        # Tensors without axes: a program that is compiled for one value serves them all.
        self.lr = torch.tensor(task.lr_at(t), dtype=task.w0.dtype, device=task.w0.device)
        self.n = n  # training examples
        self.steps = steps  # steps of task.epochs passes
        self.own = own  # what the client held when the call began
        self.kind = kind
        self.method = method
        self._part = cache(part)  # "train", "validation" or "test", when first needed
        self._plan = cache(plan)
        self.gradient = gradient  # of a function, at a vector or several: gradient(f, w)
        self._fold = fold
        self._choice = choice
        self._taken = 0
        self._tallied: dict[Tensor, dict[str, Tally]] = {}  # of paths, which are long
        self.selection: PathSelection | None = None

    def scan(
        self,
        step: StepFunction,
        carry: Any,
        passes: int | None = None,
        draw: Callable[[Tensor], Tensor] | None = None,
    ) -> Any:
        """Fold `step(carry, batch) -> carry` over the batches of some passes over the data.

        `draw` turns the uniforms of all these steps [S, noise] into what the steps find in
        `batch.u` instead, [S, ...]: a law that is costly to draw from is drawn from once.
        """
        passes = self.task.epochs if passes is None else passes
        with train(self._networks):
            return self._fold(step, carry, self._batches(passes, draw))

    def descend(
        self,
        start: Vectors,
        *,
        at: Callable[[Any, Tensor], Any] | None = None,
        loss: Callable[[Any, Batch], Tensor] | None = None,
        penalty: Callable[[Any], Tensor] | None = None,
        draw: Callable[[Tensor], Tensor] | None = None,
        epochs: int | None = None,
        lr: Tensor | float | None = None,
        momentum: float | None = None,
    ) -> Any:
        """Run SGD on loss(at(w, u), batch) + penalty(w) from `start`, a vector or several.

        u is `batch.u`: uniforms, or what `draw` made of them, as in `scan`. What `at` returns is
        what `loss` takes: one vector, or several for a loss of one's own.

        Momentum starts at zero; weight decay is coupled: g <- grad + wd * w; v <- momentum * v + g;
        w <- w - lr * v. It acts on every vector in `start` and on nothing else.

        Running statistics in these vectors follow the batches as torch's layers have it, whatever
        the loss, the penalty and the learning rate. Where they enter the network blended, as ends
        of a path do, they stay, and are set to those of the training examples in the end.
        """
        evaluate = self.loss if loss is None else loss
        eta = self.lr if lr is None else torch.as_tensor(lr, dtype=self.lr.dtype)
        rho = torch.full_like(eta, self.task.momentum if momentum is None else momentum)
        decay = torch.full_like(eta, self.task.weight_decay)

        def value(w: Any, batch: Batch) -> Tensor:
            return evaluate(w if at is None else at(w, batch.u), batch)

        shares = self._find_shares(value, start, draw)
        rates = (
            uniform_rates(start, eta, rho, decay)
            if shares is None
            else shares.rates(eta, rho, decay)
        )

        def step(carry: Any, batch: Batch) -> Any:
            w, v = carry

            def objective(w: Any) -> Tensor:
                if shares is None:
                    return value(w, batch) if penalty is None else value(w, batch) + penalty(w)
                with collect_statistics_updates(self._networks) as updates:
                    total = value(w, batch)
                for update in updates:
                    total = total + update.surrogate_loss()
                return total if penalty is None else total + penalty(shares.mask(w))

            return rates.move(w, v, self.gradient(objective, w))

        w = self.scan(step, (start, tree.map(torch.zeros_like, start)), epochs, draw)[0]
        if shares is None:
            return w
        return tree.map(
            lambda w, s: self.reestimate_statistics(w) if is_blended(s) else w, w, shares.of
        )

    def _find_shares(
        self,
        value: Callable[[Any, Batch], Tensor],
        start: Vectors,
        draw: Callable[[Tensor], Tensor] | None,
    ) -> Shares | None:
        networks = [network for network in self._networks if network.statistics is not None]
        if not networks or not self._plan().rows:
            return None
        batch = next(self._gather(self._taken, self._taken + 1, draw))
        return find_shares(networks, self.gradient, lambda w: value(w, batch), start)

    def reestimate_statistics(self, w: Tensor, where: Tensor | None = None) -> Tensor:
        """Re-estimate running statistics on the training split; return models of the same shape.

        Of models [P] or [L, P]: all of them, or those where `where` is true. A network without
        running statistics is returned unchanged.
        """
        if self.model.statistics is None:
            return w
        if where is not None:
            return torch.where(where[..., None], self.reestimate_statistics(w), w)
        if w.dim() == 2:
            return torch.stack([self.reestimate_statistics(model) for model in w])
        if len(w) != self.model.size:
            raise IsthmusError(
                f"{type(self.method).__name__} blends parts of networks, whose running statistics "
                "cannot be blended; use GroupNorm, or track_running_stats=False"
            )
        return self.model.reestimate_statistics(w, split_evenly(self._part("train").x))

    def loss(self, z: Tensor, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the network with parameters z on a batch."""
        return batch.cross_entropy(self.method.logits(self, z, batch.x))

    def best(self, path: Point) -> Point:
        """Pick the point of a path that the experiment's selection rule asks for.

        By default the one of least loss on the client's own validation part; never by test data,
        unless the experiment names an oracle.
        """
        index = self._best(path).to(path.w.device)
        point = tree.map(lambda rows: rows.index_select(0, index[None])[0], path)
        self.selection = PathSelection(path, index, point)
        return point

    def _best(self, path: Point) -> Tensor:
        rule = self.task.rule
        if self._choice is not None:  # one for all clients, found beforehand
            return torch.tensor(self._choice)
        if rule.for_all:
            raise RuntimeError(f"selection={self.task.selection} is made over all clients at once")
        if rule.split is None:
            return torch.tensor(len(path.w) // 2)
        index: Tensor = rule.cost(self.tally(path.w, rule.split)).argmin()
        return index

    def validation_loss(self, w: Tensor) -> Tensor:
        """Return the mean cross-entropy on the client's own validation part."""
        sums = self.tally(w, "validation")
        return (sums.loss / sums.n).to(w.device, w.dtype)

    @property
    def examples(self) -> Batch:
        """All training examples, as one batch without random numbers.

        What is computed for each of them once is found again by the `rows` of other batches.
        """
        x, y, weight, importance = self._part("train")
        return Batch(x, y, x.new_zeros(0), torch.arange(len(y)), importance, weight)

    def label_counts(self) -> Tensor:
        """Count the training examples of each class, [C]."""
        _, y, weight, _ = self._part("train")
        counts = one_hot(y, self.task.classes)
        if weight is not None:
            counts = counts * weight[:, None].to(counts.dtype)
        return counts.sum(0)

    def tally(self, w: Tensor, split: str) -> Tally:
        """Return the sums of a model [P], or of each of several [L, P], on a part of the data.

        The sums are on the CPU, whatever the device: not every device has double precision.
        """
        return self.tallies(w, split)[0]

    def tallies(self, w: Tensor, *splits: str) -> tuple[Tally, ...]:
        """Return the sums on several parts, which go through the network together."""
        for split in splits:
            if not len(self._part(split).y):
                raise IsthmusError(
                    f"{type(self.method).__name__} needs {split} data, and a client has none; "
                    f"set {split}=0.1"
                )
        if w.dim() == 2 and w not in self._tallied:  # who chooses on one part draws both
            held = [part for part in ("validation", "test") if len(self._part(part).y)]
            self._tallied[w] = self._sums(w, held)
        sums = self._tallied[w] if w.dim() == 2 else self._sums(w, splits)
        return tuple(sums[split] for split in splits)

    def _sums(self, w: Tensor, splits: Sequence[str]) -> dict[str, Tally]:
        parts = [self._part(split) for split in splits]
        if len(splits) > 1 and any(network.mixes_at_rest for network in self._networks):
            return {split: self._sums(w, [split])[split] for split in splits}
        # All parts at once, and models one by one: lambda 0 predicts as the shared model, exactly.
        x = torch.cat([part.x for part in parts])
        models = w.unbind(0) if w.dim() == 2 else [w]
        logits = torch.stack([self.method.logits(self, model, x) for model in models]).cpu()
        logits = logits if w.dim() == 2 else logits[0]
        each = torch.split(logits, [len(part.y) for part in parts], dim=-2)
        tallies = {}
        for split, part, given in zip(splits, parts, each, strict=True):
            weight = None if part.weight is None else part.weight.cpu()
            tallies[split] = tally(given, part.y.cpu(), weight, self.task.calibrated)
        return tallies

    def _batches(self, passes: int, draw: Callable[[Tensor], Tensor] | None) -> Iterator[Batch]:
        plan = self._plan()
        first = self._taken
        self._taken += passes * plan.per_pass
        if self._taken > len(plan.rows):
            allowed = len(plan.rows) // max(1, plan.per_pass)
            raise RuntimeError(
                f"{type(self.method).__name__} made more than the {allowed} passes over the data "
                "that its passes() announces; raise what passes() returns"
            )
        yield from self._gather(first, self._taken, draw)

    def _gather(
        self, first: int, end: int, draw: Callable[[Tensor], Tensor] | None
    ) -> Iterator[Batch]:
        x, y, _, importance = self._part("train")
        counted = isinstance(importance, Tensor)
        gathered = (x, y, importance) if counted else (x, y)
        plan = self._plan()
        u = plan.u[first:end]
        u = u if draw is None else draw(u)
        some = max(1, GATHER_ROWS // self.task.batch_size)
        for begin in range(first, end, some):
            rows = plan.rows[begin : min(begin + some, end)]
            together = torch.cat(rows)
            lengths = [batch.size(0) for batch in rows]  # len() of a tensor takes ten times as long
            parts = zip(rows, *(torch.split(t[together], lengths) for t in gathered), strict=True)
            for s, part in enumerate(parts, start=begin):
                weight = None if plan.weight is None else plan.weight[s]
                yield Batch(
                    *(part[1], part[2], u[s - first], part[0], part[3] if counted else (), weight)
                )
