"""The bundled networks: sizes, shapes and cuts as published."""

import pytest
import torch

from isthmus import parts
from isthmus.errors import IsthmusError
from isthmus.models import MODELS
from isthmus.models.flat import Flat

MNIST, CIFAR = (1, 28, 28), (3, 28, 28)


def flat(name: str, shape: tuple[int, ...], head: str = "last") -> Flat:
    return Flat(lambda: MODELS[name](shape, 10), head)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "shape", "size", "last", "classifier"),
    [
        ("mlp", (1, 8, 8), 4_810, 650, 650),
        ("twonn", MNIST, 199_210, 2_010, 2_010),
        ("twonn_superfed", MNIST, 238_800, 2_000, 42_000),
        ("twocnn", MNIST, 1_663_370, 5_130, 5_130),
        ("twocnn_superfed", CIFAR, 722_800, 2_000, 669_200),
    ],
)
def test_a_network_has_its_published_size_and_cuts(
    name: str, shape: tuple[int, ...], size: int, last: int, classifier: int
) -> None:
    """Weights + biases, layer by layer, the head after "|":

    mlp              64*64 + 64 | 64*10 + 10 = 4,160 | 650
    twonn            784*200 + 200 + 200*200 + 200 | 200*10 + 10 = 197,200 | 2,010
    twonn_superfed   784*200 + 200*200 | 200*200 + 200*10 = 196,800 | 42,000; last layer 2,000
    twocnn           25*32 + 32 + 25*32*64 + 64 + 3136*512 + 512 | 512*10 + 10 = 1,658,240 | 5,130
    twocnn_superfed  3*25*32 + 32*25*64 | 3136*200 + 200*200 + 200*10 = 53,600 | 669,200
    """
    network = flat(name, shape)
    assert network.size == size
    assert network.head == slice(size - last, size)
    assert flat(name, shape, head="classifier").head == slice(size - classifier, size)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [MNIST, CIFAR, (1, 8, 8)], ids=str)
def test_a_network_gives_one_logit_per_class(name: str, shape: tuple[int, ...]) -> None:
    network = flat(name, shape)
    assert network.logits(network.fresh(seed=0), torch.ones(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("name", ["twonn_superfed", "twocnn_superfed"])
def test_the_superfed_networks_have_no_biases(name: str) -> None:
    """Without biases, and with ReLU, zeros come out where zeros go in."""
    network = flat(name, CIFAR)
    logits = network.logits(network.fresh(seed=0), torch.zeros(1, *CIFAR))
    assert logits.count_nonzero() == 0
    assert all(tensor.dim() > 1 for tensor in network.tensors(network.fresh(seed=0)))


def test_layers_of_equal_shape_get_different_weights() -> None:
    """The authors' code seeds every layer anew, so that its two 200x200 layers start equal.

    Here they are independent: the correlation of two times 40,000 independent numbers has the
    deviation 1/200; six of these are 0.03.
    """
    network = flat("twonn_superfed", MNIST)
    first, second = network.tensors(network.fresh(seed=3))[1:3]
    assert first.shape == second.shape == (200, 200)
    correlation = torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1]
    assert abs(correlation) < 0.03


def test_the_superfed_networks_are_drawn_xavier_normal() -> None:
    """Deviation sqrt(2 / (fan_in + fan_out)): sqrt(2 / 984) for 200 x 784 weights.

    Of 156,800 normal numbers the sample deviation is off by 1 / sqrt(2 * 156,800) = 0.18 % of its
    value; six times that is 1.1 %.
    """
    network = flat("twonn_superfed", MNIST)
    first = network.tensors(network.fresh(seed=3))[0]
    assert first.std().item() == pytest.approx((2 / 984) ** 0.5, rel=0.011)
    assert first.abs().max().item() > 3 * (2 / 984) ** 0.5, "normal, not uniform"


@pytest.mark.parametrize("name", ["twocnn", "twocnn_superfed"])
@pytest.mark.parametrize("shape", [(16,), (28, 28), (1, 3, 28)], ids=str)
def test_a_convolution_refuses_what_is_no_image(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(IsthmusError, match=f"{name} was given .* expected images, .* set model="):
        MODELS[name](shape, 10)


def test_a_width_is_an_option() -> None:
    """64*5 + 5 + 5*10 + 10 = 385."""
    table = parts.complete("model", {"name": "mlp", "hidden": 5})
    assert Flat(lambda: parts.build("model", table, (1, 8, 8), 10)).size == 385


@pytest.mark.parametrize("hidden", [0, -1, 2.5, "wide"])
def test_a_width_that_is_none_is_refused(hidden: object) -> None:
    with pytest.raises(IsthmusError, match=r"model\.hidden=.*; expected .*model\.hidden=64"):
        parts.complete("model", {"name": "mlp", "hidden": hidden})
