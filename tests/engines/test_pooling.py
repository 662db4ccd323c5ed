"""A convolution, ReLU and pooling as one operation: what torch gives, where it is known."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad
from torch.nn.functional import conv2d, leaky_relu, max_pool2d, relu

from isthmus.client import Batch
from isthmus.engines import native
from isthmus.engines.compiled import Compiled, has_compiler, repays
from isthmus.engines.loop import fold
from isthmus.engines.native import pooling
from isthmus.engines.native.pooling import load_kernels, pool_images
from isthmus.models import MODELS
from isthmus.models.flat import Flat
from isthmus.models.layout import pools

if not native.load():
    pytest.skip(f"made for the compiler of {native.list_known()}", allow_module_level=True)
if not has_compiler():
    pytest.skip("there is no C++ compiler", allow_module_level=True)


def pool_apart(x: Tensor, weight: Tensor, bias: Tensor, padding: int, slope: float = 0.0) -> Tensor:
    return max_pool2d(leaky_relu(conv2d(x, weight, bias, padding=padding), slope), 2)


@pytest.mark.parametrize("slope", [0.0, 0.01])
@pytest.mark.parametrize(
    "sizes",  # images, channels, height, width; filters, their side, padding
    [
        (50, 3, 32, 32, 6, 5, 0),  # LeNet-5's two
        (50, 6, 14, 14, 16, 5, 0),
        (10, 3, 32, 32, 32, 5, 2),  # TwoCNN's first
        (4, 16, 9, 12, 20, 3, 1),  # a row that is pooled with none is left out
        (2, 1, 28, 28, 9, 5, 2),
        (1, 1, 2, 2, 1, 1, 0),
        (3, 7, 8, 13, 17, 7, 3),
    ],
)
def test_values_and_gradients_are_torch_s(sizes: tuple[int, ...], slope: float) -> None:
    images, channels, height, width, out, side, padding = sizes
    torch.manual_seed(0)
    x = torch.randn(images, channels, height, width, requires_grad=True)
    weight = torch.randn(out, channels, side, side, requires_grad=True)
    bias = torch.randn(out, requires_grad=True)
    given = (x, weight, bias)
    ours = pool_images(*given, padding, slope)
    theirs = pool_apart(*(each.double() for each in given), padding, slope)
    along = torch.randn(ours.shape)
    found = (ours, *torch.autograd.grad(ours, given, along))
    expected = (theirs, *torch.autograd.grad(theirs, given, along.double()))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


def test_the_gradient_of_images_is_left_out_where_nobody_wants_it() -> None:
    weight = torch.ones(1, 1, 1, 1, requires_grad=True)
    x = torch.tensor([[[[1.0, 2.0], [3.0, 0.5]]]])
    (of_weight,) = torch.autograd.grad(pool_images(x, weight, torch.zeros(1)).sum(), weight)
    assert of_weight.item() == 3.0
    along, chosen = torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), 2, dtype=torch.uint8)
    _, _, of_images = pooling.differentiate_pool(along, chosen, x, weight, 0, 0.0, False)
    assert of_images.numel() == 0


def test_what_is_no_number_stays_none() -> None:
    x = torch.zeros(1, 1, 2, 2)
    x[0, 0, 1, 0] = torch.nan
    assert pool_images(x, torch.ones(1, 1, 1, 1), torch.zeros(1)).isnan().all()


class Caught:
    """Keeps the graphs of programs, and runs them as they are."""

    def __init__(self) -> None:
        self.targets: list[Any] = []

    def __call__(self, graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        self.targets += [node.target for node in graph.graph.nodes]
        return graph.forward


def take_steps(objective: Callable[[Tensor, Tensor], Tensor]) -> Caught:
    """Takes three steps down an objective of 9 * 4 weights and images, compiled and plain."""
    torch.manual_seed(0)
    y, nothing = torch.zeros(8, dtype=torch.int64), torch.zeros(0)
    batches = [Batch(torch.randn(8, 1, 6, 6), y, nothing, y) for _ in range(3)]

    def step(carry: tuple[Tensor], batch: Batch) -> tuple[Tensor]:
        return (carry[0] - 0.1 * grad(objective)(carry[0], batch.x),)

    caught = Caught()
    compiled = Compiled(batch_size=8, layers=1, make_program=caught)
    start = (torch.randn(36),)
    (found,) = compiled.fold(step, start, iter(batches), n=-1)
    (expected,) = fold(step, start, iter(batches))
    assert torch.allclose(found, expected, atol=1e-5)
    assert (compiled.programs, compiled.notes) == (1, [])
    return caught


def objective(w: Tensor, x: Tensor) -> Tensor:
    inside = conv2d(x, w.view(4, 1, 3, 3), w[:4], padding=1)
    return max_pool2d(relu(inside), 2).square().mean()


def pooled(w: Tensor, x: Tensor, slope: float) -> Tensor:
    return pool_apart(x, w.view(4, 1, 3, 3), w[:4], 1, slope).square().mean()


@pytest.mark.parametrize("one", [objective, partial(pooled, slope=0.2)])
def test_a_step_has_the_one_operation_in_place_of_three(
    one: Callable[[Tensor, Tensor], Tensor],
) -> None:
    targets = take_steps(one).targets
    assert pool_images in targets
    assert not {torch.conv2d, relu, leaky_relu, max_pool2d} & set(targets)


def convolved(w: Tensor, x: Tensor, *bias: Tensor, **given: Any) -> Tensor:
    return relu(conv2d(x, w.view(4, 1, 3, 3), *bias, **given))


OTHERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a slope below zero": partial(pooled, slope=-0.2),
    "strides": lambda w, x: max_pool2d(convolved(w, x, w[:4], stride=2), 2).square().mean(),
    "pools that overlap": lambda w, x: max_pool2d(convolved(w, x, w[:4]), 2, 1).square().mean(),
    "no bias": lambda w, x: max_pool2d(convolved(w, x), 2).square().mean(),
    "a ReLU that is read": lambda w, x: sum(
        each.square().mean() for z in [convolved(w, x, w[:4])] for each in (max_pool2d(z, 2), z)
    ),
    "a gradient of a gradient": lambda w, x: grad(objective)(w, x).square().sum(),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_it_is_not_made_for_is_left_alone(other: str) -> None:
    assert pool_images not in take_steps(OTHERS[other]).targets


def test_where_it_cannot_be_built_programs_are_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "load_kernels", lambda: None)
    assert pool_images not in take_steps(objective).targets


def test_what_cannot_be_built_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.codecache import CppCodeCache

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such compiler")

    monkeypatch.setattr(CppCodeCache, "load", refuse)
    load_kernels.cache_clear()
    try:
        assert load_kernels() is None
    finally:
        load_kernels.cache_clear()


@pytest.mark.parametrize(
    ("model", "pools"),
    [("lenet5", True), ("simplecnn", True), ("twonn", False), ("resnet9", False)],
)
def test_networks_that_pool_convolutions_repay_compiling_sooner(model: str, pools: bool) -> None:
    network = Flat(lambda: MODELS[model]((3, 32, 32), 10))
    assert network.pools is pools
    assert repays(network, 1_000 * network.layers) is pools
    assert repays(network, 10_000 * network.layers)
    assert not repays(network, 999 * network.layers)


@pytest.mark.parametrize(
    ("convolution", "pool"),
    [
        (nn.Conv2d(1, 2, 3), nn.MaxPool2d(3)),
        (nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, 1)),
        (nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, ceil_mode=True)),
        (nn.Conv2d(1, 2, (5, 3)), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 2, 3, padding=(0, 1)), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 2, 3, padding="same"), nn.MaxPool2d(2)),
        (nn.Conv2d(1, 2, 3, bias=False), nn.MaxPool2d(2)),
    ],
)
def test_layers_that_it_is_not_made_for_are_not_found(
    convolution: nn.Conv2d, pool: nn.MaxPool2d
) -> None:
    assert not pools(nn.Sequential(convolution, nn.ReLU(), pool))
    assert pools(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2)))
