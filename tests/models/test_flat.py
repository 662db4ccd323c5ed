"""A network as one vector: the same numbers as the plain module, cut where its parts are."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from golden import raises
from isthmus.errors import IsthmusError
from isthmus.models.flat import Flat


class Blocks(nn.Module):
    """Two convolutions and a linear layer in the body, two linear layers in the classifier."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.body = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 3, 3, bias=False), nn.Flatten()
        )
        self.classifier = nn.Sequential(nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 4))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.body(x))
        return logits


class Recurrent(nn.Module):
    """A two-layer LSTM and a linear layer on its last step."""

    def __init__(self, dropout: float = 0.0) -> None:
        nn.Module.__init__(self)
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True, dropout=dropout)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.lstm(x)[0][:, -1])
        return logits


class HeadFirst(nn.Module):
    """Defines its classifier before its body."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.classifier = nn.Linear(4, 2)
        self.body = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.body(x))
        return logits


def images(count: int = 3) -> Tensor:
    return torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(1))


def test_the_last_weight_owning_module_is_the_head() -> None:
    """Conv 1*2*9 + 2 = 20, conv 2*3*9 = 54, linear 12*5 + 5 = 65, linear 5*4 + 4 = 24: 163 in all,
    of which the last linear layer has 24."""
    flat = Flat(Blocks)
    assert flat.size == 163
    assert flat.body == slice(0, 139)
    assert flat.head == slice(139, 163)


def test_the_classifier_block_is_the_head_where_it_is_asked_for() -> None:
    """20 + 54 = 74 in the convolutions; 65 + 24 = 89 in the classifier."""
    flat = Flat(Blocks, head="classifier")
    assert flat.body == slice(0, 74)
    assert flat.head == slice(74, 163)


def test_a_single_layer_is_all_head() -> None:
    flat = Flat(lambda: nn.Linear(3, 2))
    assert (flat.body, flat.head) == (slice(0, 0), slice(0, 8))


def test_a_weight_and_its_bias_are_one_layer() -> None:
    flat = Flat(Blocks)
    expected = [0] * 20 + [1] * 54 + [2] * 65 + [3] * 24
    assert flat.layers == 4
    assert flat.layer.tolist() == expected


def test_a_stack_of_lstm_layers_is_one_module() -> None:
    """Each LSTM layer has 4 gates of 4 with input, hidden and two bias parts: the first
    16 * (3 + 4 + 2) = 144, the second 16 * (4 + 4 + 2) = 160; the linear layer 4*2 + 2 = 10."""
    flat = Flat(Recurrent)
    assert flat.layers == 2
    assert torch.bincount(flat.layer).tolist() == [304, 10]
    assert flat.head == slice(304, 314)


@pytest.mark.parametrize(
    ("build", "x"), [(Blocks, images()), (Recurrent, images(8)[:, 0, :, :3])], ids=["conv", "lstm"]
)
def test_logits_are_exactly_those_of_the_plain_module(
    build: Callable[[], nn.Module], x: Tensor
) -> None:
    flat = Flat(build)
    w = flat.fresh(seed=5)
    assert torch.equal(flat.logits(w, x), flat.load(w)(x))
    assert not torch.equal(flat.logits(w, x), flat.logits(flat.fresh(seed=6), x))


def test_a_gradient_reaches_every_coordinate() -> None:
    flat = Flat(Recurrent)
    w = flat.fresh(seed=5).requires_grad_()
    flat.logits(w, images(8)[:, 0, :, :3]).square().sum().backward()
    assert w.grad is not None
    assert w.grad.count_nonzero() == flat.size


def test_loading_and_flattening_is_a_round_trip() -> None:
    flat = Flat(Blocks)
    w = torch.arange(163.0)
    module = flat.load(w)
    assert torch.equal(flat.flatten(module), w)
    assert module.get_parameter("classifier.2.bias").tolist() == [159, 160, 161, 162]
    with torch.no_grad():
        module.get_parameter("body.0.bias").zero_()
    assert w[18] == 18, "the module has a copy, not the vector"


def test_features_are_what_enters_the_head() -> None:
    x = images()
    for head, width in (("last", 5), ("classifier", 12)):
        flat = Flat(Blocks, head=head)  # type: ignore[arg-type]
        w = flat.fresh(seed=2)
        plain: Any = flat.load(w)
        expected = plain.body(x)
        if head == "last":
            expected = plain.classifier[1](plain.classifier[0](expected))
        found = flat.features(w, x)
        assert found.shape == (3, width)
        assert torch.equal(found, expected)
        both = flat.features_and_logits(w, x)
        assert torch.equal(both[0], found)
        assert torch.equal(both[1], flat.logits(w, x))


class Functional(nn.Module):
    """Uses its last layer's weight without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.last.weight.T


def test_a_head_that_is_not_called_has_no_features() -> None:
    flat = Flat(Functional)
    with raises(IsthmusError):
        flat.features(flat.fresh(seed=0), torch.zeros(1, 2))


def test_a_fresh_vector_is_what_the_constructor_draws_from_that_seed() -> None:
    flat = Flat(Blocks)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        drawn = flat.flatten(Blocks())
    assert torch.equal(flat.fresh(seed=7), drawn)
    assert torch.equal(flat.fresh(seed=7), flat.fresh(seed=7))
    assert not torch.equal(flat.fresh(seed=7), flat.fresh(seed=8))


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    flat = Flat(Blocks)
    flat.load(flat.fresh(seed=7))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_finished_module_is_refused_for_something_that_builds_one() -> None:
    with raises(IsthmusError):
        Flat(nn.Linear(2, 2))  # type: ignore[arg-type]


REFUSED: dict[str, Callable[[], Any]] = {
    "no module": lambda: torch.ones(2),
    "statistics without end": lambda: nn.Sequential(
        nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 2)
    ),
    "nothing to train": lambda: nn.Linear(2, 2).requires_grad_(False),
    "no parameters": lambda: nn.Sequential(nn.Flatten()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_is_no_function_of_its_parameters_is_refused(name: str) -> None:
    build = REFUSED[name]
    with raises(IsthmusError):
        Flat(build)


def test_harmless_relatives_of_refused_layers_are_taken() -> None:
    flat = Flat(
        lambda: nn.Sequential(
            nn.Linear(2, 4),
            nn.BatchNorm1d(4, track_running_stats=False),
            nn.GroupNorm(2, 4),
            nn.Dropout(0.0),
            nn.Linear(4, 2),
        )
    )
    assert flat.layers == 4


def test_a_head_that_is_not_last_is_refused() -> None:
    with raises(IsthmusError):
        Flat(HeadFirst, head="classifier")
    assert Flat(HeadFirst, head="last").head == slice(10, 26)


def test_a_missing_classifier_is_refused() -> None:
    plain = OrderedDict(body=nn.Linear(2, 2), top=nn.Linear(2, 2))
    with raises(IsthmusError):
        Flat(lambda: nn.Sequential(plain), head="classifier")
