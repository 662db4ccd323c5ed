"""Networks with running statistics, random layers and frozen parts, as one vector."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from isthmus.models import card
from isthmus.models.flat import Flat


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


def inputs(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))


def test_statistics_lie_behind_the_parameters_of_their_layer() -> None:
    """Linear 2*3 + 3 = 9, scale and shift 6, mean and variance 6, linear 3*2 + 2 = 8."""
    flat = Flat(normalised)
    assert flat.size == 29
    assert flat.statistics is not None
    assert flat.statistics.nonzero().flatten().tolist() == list(range(15, 21))
    assert flat.fresh(1)[15:21].tolist() == [0, 0, 0, 1, 1, 1], "as torch begins them"
    assert flat.stretches == [(False, 9), (True, 12), (False, 8)]
    assert (flat.body, flat.head) == (slice(0, 21), slice(21, 29))


def test_evaluation_uses_the_vector_s_statistics_and_leaves_them() -> None:
    flat, x = Flat(normalised), inputs(5)
    w = flat.fresh(1)
    w[15:21] = torch.tensor([0.5, -1, 2, 4, 0.25, 9])
    before = w.clone()
    module = flat.load(w)
    assert not module.training
    assert torch.equal(flat.logits(w, x), module(x))
    assert torch.equal(flat.logits(w, x[:1]), module(x[:1])), "one example is enough"
    assert torch.equal(w, before)
    assert module.get_buffer("1.running_var").tolist() == [4, 0.25, 9]


def test_a_forward_pass_in_training_tells_where_statistics_go() -> None:
    """Inputs 1 and 3 of one feature: mean 2, unbiased variance 2. From 0 and 1, with momentum 0.1,
    torch goes to 0.2 and 0.9 * 1 + 0.1 * 2 = 1.1."""
    flat = Flat(lambda: nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2)))
    w = flat.fresh(0)
    flat.train(True)
    with flat.collect_statistics_updates() as updates:
        flat.logits(w, torch.tensor([[1.0], [3.0]]))
    flat.train(False)
    assert [update.before.item() for update in updates] == [0, 1]
    assert [update.after.item() for update in updates] == pytest.approx([0.2, 1.1])
    assert w[2:4].tolist() == [0, 1], "the vector itself stays"


def test_settled_statistics_are_those_of_all_examples() -> None:
    """In one batch 1, 3, 5: mean 3, variance 4. In batches (1, 3) and (5, 9, 13): means 2 and 9,
    variances 2 and 16; weighted by 2 and 3: 6.2 and 10.4."""
    flat = Flat(lambda: nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.5), nn.Linear(1, 2)))
    w = flat.fresh(0)
    x = torch.tensor([[1.0], [3.0], [5.0]])
    assert flat.reestimate_statistics(w, [x])[2:4].tolist() == [3, 4]
    settled = flat.reestimate_statistics(w, [x[:2], torch.tensor([[5.0], [9.0], [13.0]])])
    assert settled[2:4].tolist() == pytest.approx([6.2, 10.4])
    assert torch.equal(settled[4:], w[4:])


def test_random_layers_draw_in_training_alone() -> None:
    flat = Flat(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2)))
    w, x = flat.fresh(0), inputs(8)
    assert flat.random
    assert torch.equal(flat.logits(w, x), flat.logits(w, x))
    flat.train(True)
    assert not torch.equal(flat.logits(w, x), flat.logits(w, x))
    flat.train(False)


def test_a_layer_of_one_s_own_knows_whether_it_is_trained() -> None:
    class Doubling(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x if self.training else x

    flat = Flat(lambda: nn.Sequential(Doubling(), nn.Linear(2, 2, bias=False)))
    w, x = flat.fresh(0), inputs(3)
    at_rest = flat.logits(w, x)
    flat.train(True)
    assert torch.equal(flat.logits(w, x), 2 * at_rest)
    flat.train(False)
    assert torch.equal(flat.logits(w, x), at_rest)


def frozen_body() -> nn.Module:
    body = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).requires_grad_(False)
    return nn.Sequential(body, nn.Linear(3, 2))


def test_frozen_parameters_are_outside_the_vector_and_the_same_for_all() -> None:
    flat, other, x = Flat(frozen_body), Flat(frozen_body), inputs(4)
    assert flat.size == 8
    assert flat.statistics is None, "the statistics of a frozen layer are frozen too"
    w = flat.fresh(1)
    assert torch.equal(flat.logits(w, x), other.logits(w, x))
    assert torch.equal(flat.load(w)(x), flat.logits(w, x))
    flat.train(True)
    assert torch.equal(flat.load(w)(x), flat.logits(w, x)), "in training as afterwards"
    flat.train(False)
    assert len(set(flat.find_memory(w, x))) == 0


def test_frozen_parameters_are_not_differentiated() -> None:
    flat, x = Flat(frozen_body), inputs(4)
    leaf = flat.fresh(1).requires_grad_()
    (gradient,) = torch.autograd.grad(flat.logits(leaf, x).sum(), leaf)
    assert gradient.shape == (8,)
    assert gradient.abs().sum() > 0


class FrozenToken(nn.Module):
    """Holds a frozen parameter itself, beside layers that are trained."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.token = nn.Parameter(torch.ones(2), requires_grad=False)
        self.norm = nn.BatchNorm1d(2)
        self.out = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.norm(x + self.token))
        return logits


def test_a_frozen_parameter_does_not_freeze_the_layers_beside_it() -> None:
    flat, x = Flat(FrozenToken), inputs(6)
    w = flat.fresh(1)
    before = w.clone()
    flat.train(True)
    with flat.collect_statistics_updates() as updates:
        flat.logits(w, x)
    flat.train(False)
    assert torch.equal(w, before)
    assert not torch.equal(updates[0].before, updates[0].after)


class Tied(nn.Module):
    """An embedding whose transpose is the last layer's weight."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.embedding = nn.Linear(2, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(2, 4)
        self.out.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.norm(self.embedding(x))
        logits: Tensor = self.out(hidden @ self.embedding.weight)
        return logits


def test_tied_parameters_are_one() -> None:
    flat, x = Flat(Tied), inputs(5)
    assert flat.size == 8 + 8 + 8 + 4
    w = flat.fresh(3)
    module = flat.load(w)
    assert torch.equal(flat.logits(w, x), module(x))
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    assert module.out.weight is module.embedding.weight


def test_a_buffer_that_remembers_is_found() -> None:
    class Counting(nn.Module):
        seen: Tensor

        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.register_buffer("seen", torch.zeros(()))
            self.register_buffer("scale", torch.full((), 2.0))
            self.out = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.seen += len(x)
            logits: Tensor = self.out(x * self.scale)
            return logits

    flat = Flat(Counting)
    assert flat.find_memory(flat.fresh(0), inputs(2)) == ["seen"]


def test_tied_parameters_are_written_and_read_back(tmp_path: Path) -> None:
    flat, x = Flat(Tied), inputs(5)
    module = flat.load(flat.fresh(3))
    about = {"file": "a.safetensors", "model": {"name": "own"}, "shape": [2], "classes": 4}
    path = card.save(card.pack(module), about, tmp_path, "a")
    assert torch.equal(card.load_network(path, Tied)(x), module(x))
