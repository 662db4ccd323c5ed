"""The bundled networks: sizes, shapes and cuts as published; the same numbers however called."""

import re
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy, linear

from golden import raises
from isthmus.errors import IsthmusError
from isthmus.experiment import registry
from isthmus.models import MODELS
from isthmus.models.flat import Flat
from isthmus.models.residual import Residual

MNIST, SMALL_CIFAR, CIFAR, TINY, TEXT = (1, 28, 28), (3, 28, 28), (3, 32, 32), (3, 64, 64), (80,)
DIGITS, SHORT = (1, 8, 8), (6,)


class Row(NamedTuple):
    """A network on the data it was published for, and on small inputs that run fast."""

    name: str
    shape: tuple[int, ...]
    classes: int
    size: int
    last: int  # parameters of the last layer
    classifier: int
    small: tuple[int, ...] = (3, 16, 16)


TABLE = [
    Row("mlp", DIGITS, 10, 4_810, 650, 650, DIGITS),
    Row("twonn", MNIST, 10, 199_210, 2_010, 2_010, DIGITS),
    Row("twonn_superfed", MNIST, 10, 238_800, 2_000, 42_000, DIGITS),
    Row("twocnn", MNIST, 10, 1_663_370, 5_130, 5_130, DIGITS),
    Row("twocnn_superfed", SMALL_CIFAR, 10, 722_800, 2_000, 669_200, DIGITS),
    Row("cnn", CIFAR, 10, 33_834, 10_250, 10_250, DIGITS),
    Row("cnn5", CIFAR, 10, 94_186, 5_130, 5_130, MNIST),
    Row("lenet5", CIFAR, 10, 52_202, 1_210, 1_210),
    Row("lenet5_sixth", CIFAR, 10, 8_744, 510, 510),
    Row("simplecnn", CIFAR, 10, 107_690, 1_290, 1_290),
    Row("simplecnn_femnist", MNIST, 62, 45_054, 31_806, 31_806),
    Row("vgg9", MNIST, 62, 1_718_416, 15_872, 146_944),
    Row("resnet9", SMALL_CIFAR, 100, 5_054_784, 25_600, 156_672),
    Row("resnet9_superfed", SMALL_CIFAR, 100, 5_054_784, 25_600, 156_672),
    Row("mobilenet", TINY, 200, 364_480, 51_200, 182_272, (3, 33, 33)),
    Row("mobilenet_superfed", TINY, 200, 364_480, 51_200, 182_272, (3, 37, 37)),
    Row("resnet18", CIFAR, 10, 11_181_642, 5_130, 5_130, DIGITS),
    Row("squeezenet", CIFAR, 10, 727_626, 5_130, 5_130, (1, 17, 17)),
    Row("stackedlstm", TEXT, 100, 823_172, 25_700, 25_700, SHORT),
    Row("stackedlstm_superfed", TEXT, 100, 821_024, 25_600, 25_600, SHORT),
    Row("transformer", CIFAR, 10, 43_930, 490, 490, DIGITS),
    Row("vit", CIFAR, 10, 208_074, 650, 650, DIGITS),
]
EVERY = pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])


def flat(name: str, shape: tuple[int, ...], head: str = "last", classes: int = 10) -> Flat:
    return Flat(lambda: MODELS[name](shape, classes), head)  # type: ignore[arg-type]


def size(name: str, shape: tuple[int, ...], classes: int) -> int:
    return flat(name, shape, classes=classes).size


def inputs(shape: tuple[int, ...], count: int = 4) -> Tensor:
    """Draws images, or tokens below 10 where the shape is that of a text."""
    generator = torch.Generator().manual_seed(1)
    if len(shape) == 1:
        return torch.randint(10, (count, *shape), generator=generator)
    return torch.randn(count, *shape, generator=generator, dtype=torch.float64)


def test_every_network_is_in_the_table() -> None:
    assert [row.name for row in TABLE] == list(MODELS)


@EVERY
def test_every_network_has_its_row_in_the_documentation(row: Row) -> None:
    lines = (Path(__file__).parents[2] / "docs" / "models.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"| `{row.name}` |"))
    assert f"{row.size:,}" in line
    for option in registry.list_options("model")[row.name]:
        assert re.search(rf"`{option}\b", "".join(lines))


@EVERY
def test_a_network_has_its_published_size_and_cuts(row: Row) -> None:
    """Weights + biases, layer by layer, the head after "|":

    mlp              64*64 + 64 | 64*10 + 10 = 4,160 | 650
    twonn            784*200 + 200 + 200*200 + 200 | 200*10 + 10 = 197,200 | 2,010
    twonn_superfed   784*200 + 200*200 | 200*200 + 200*10 = 196,800 | 42,000; last layer 2,000
    twocnn           25*32 + 32 + 25*32*64 + 64 + 3136*512 + 512 | 512*10 + 10 = 1,658,240 | 5,130
    twocnn_superfed  3*25*32 + 32*25*64 | 3136*200 + 200*200 + 200*10 = 53,600 | 669,200
    cnn              448 + 4,640 + 18,496 | 1025*10 = 23,584 | 10,250
    cnn5             76*32 + 801*64 + 577*32 + 33*512 | 513*10 = 89,056 | 5,130
    lenet5           76*6 + 151*16 + 401*120 | 121*10 = 50,992 | 1,210
    lenet5_sixth     76*3 + 76*6 + 151*50 | 51*10 = 8,234 | 510
    simplecnn        76*16 + 401*32 + 289*64 + 577*128 | 129*10 = 106,400 | 1,290
    simplecnn_femnist  26*16 + 401*32 | 513*62 = 13,248 | 31,806
    vgg9             9*(16 + 16*32 + 32*64 + 64*128 + 128*256 + 256*512) | 512*256 + 256*62
    resnet9          1,856 + 73,984 + 230,144 + 919,040 + 3,673,088 | 512*256 + 256*100
    mobilenet        928 + 2,528 + 9,152 + 34,688 + 134,912 | 512*256 + 256*200
    resnet18         torchvision's 11,689,512 for 1000 classes, less 990 * 513
    squeezenet       torchvision's 1,235,496 for 1000 classes, less 990 * 513
    stackedlstm      100*8 + 1024*(8 + 256 + 1) + 1024*(256 + 256 + 1) | 257*100
    transformer      49*48 + 64*48 + 2*18,960 + 96 | 49*10, a block having
                     49*144 + 49*48 + 49*96 + 97*48 + 4*48 = 18,960
    """
    network = flat(row.name, row.shape, classes=row.classes)
    assert network.size == row.size
    assert network.head == slice(row.size - row.last, row.size)
    classifier = flat(row.name, row.shape, "classifier", row.classes)
    assert classifier.head == slice(row.size - row.classifier, row.size)


@pytest.mark.parametrize(
    ("shape", "classes", "expected"),
    [(MNIST, 62, 109_022), (CIFAR, 10, 94_186), (CIFAR, 100, 140_356), (TINY, 200, 181_416)],
)
def test_the_five_layers_fit_each_of_their_data_sets(
    shape: tuple[int, ...], classes: int, expected: int
) -> None:
    """Kernels of conv3 are 2, 3, 3 and 2 wide, so that a map of one place is left."""
    assert size("cnn5", shape, classes) == expected


@pytest.mark.parametrize(
    ("shape", "classes", "full", "sixth", "widths"),
    [
        (CIFAR, 10, 52_202, 8_744, (3, 6, 50)),
        (CIFAR, 100, 63_092, 10_824, (3, 6, 40)),
        (MNIST, 10, 34_622, 5_894, (3, 6, 50)),
    ],
)
def test_the_supervisor_is_about_a_sixth_of_lenet5(
    shape: tuple[int, ...], classes: int, full: int, sixth: int, widths: tuple[int, ...]
) -> None:
    """1/5.97, 1/5.83 and 1/5.87. On MNIST 26*6 + 2,416 + 257*120 + 1,210 = 34,622, and
    26*3 + 456 + 97*50 + 510 = 5,894."""
    assert size("lenet5", shape, classes) == full
    network = flat("lenet5_sixth", shape, classes=classes)
    assert network.size == sixth
    tensors = network.tensors(network.fresh(seed=0))
    assert tuple(len(tensor) for tensor in tensors[1::2]) == (*widths, classes)


@EVERY
def test_logits_are_those_of_the_plain_module(row: Row) -> None:
    network = flat(row.name, row.small)
    w, x = network.fresh(seed=5).double(), inputs(row.small)
    logits = network.logits(w, x)
    assert logits.shape == (4, 10)
    assert logits.isfinite().all()
    assert torch.equal(logits, network.load(w).double()(x))
    assert not torch.equal(logits[0], logits[1]), "it looks at its inputs"


def loss(network: Flat, w: Tensor, x: Tensor) -> Tensor:
    return cross_entropy(network.logits(w, x), torch.arange(len(x)) % 10)


@EVERY
def test_a_gradient_reaches_every_tensor_in_both_engines(row: Row) -> None:
    """Of two clients at once and of one after the other: in float64 the two agree to 1e-9 of the
    largest coordinate, 1e-16 times the terms of a sum. Batch statistics are for `loop` alone."""
    network = flat(row.name, row.small)
    rows = torch.stack([network.fresh(seed=seed) for seed in (5, 6)]).double()
    x = inputs(row.small).unflatten(0, (2, 2))  # two clients with two examples each
    alone = [
        torch.autograd.grad(loss(network, leaf, x[k]), leaf)[0]
        for k, leaf in enumerate(rows.clone().requires_grad_().unbind(0))
    ]
    for tensor in network.tensors(alone[0]):
        assert tensor.count_nonzero() > 0
    if not network.mixes_examples:
        together = vmap(grad(lambda w, x: loss(network, w, x)), randomness="error")(rows, x)
        scale = max(gradient.abs().max().item() for gradient in alone)
        assert (together - torch.stack(alone)).abs().max() < 1e-9 * scale


@EVERY
def test_features_are_what_enters_the_last_layer_or_the_classifier(row: Row) -> None:
    network, cut = flat(row.name, row.small), flat(row.name, row.small, "classifier")
    w, x = network.fresh(seed=5).double(), inputs(row.small)
    body = network.load(w).double().get_submodule("body")
    assert torch.equal(cut.features(w, x), body(x).flatten(1))
    features, (*_, weight) = network.features(w, x), (t for t in network.tensors(w) if t.dim() > 1)
    if row.name == "squeezenet":  # a 1x1 convolution: a map of features enters
        assert features.shape == (4, 512)
        logits = linear(features, weight.flatten(1)).relu()  # its biases begin at zero
    else:
        bias = network.tensors(w)[-1]
        logits = linear(features, weight, bias if bias.dim() == 1 else None)
    assert torch.allclose(logits, network.logits(w, x), rtol=1e-12)


PICTURES = [name for name in MODELS if "lstm" not in name]
SMALL_PICTURES = [name for name in PICTURES if not name.startswith("mobilenet")]


@pytest.mark.parametrize(
    ("name", "shape"),
    [*product(SMALL_PICTURES, [MNIST, CIFAR]), *product(PICTURES, [TINY])],
    ids=str,
)
def test_a_network_takes_the_images_of_the_benchmarks(name: str, shape: tuple[int, ...]) -> None:
    network = flat(name, shape)
    assert network.logits(network.fresh(seed=0), torch.ones(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("name", ["twonn_superfed", "twocnn_superfed", "vgg9"])
def test_the_superfed_networks_have_no_biases(name: str) -> None:
    """Without biases, and with ReLU, zeros come out where zeros go in."""
    network = flat(name, SMALL_CIFAR)
    logits = network.logits(network.fresh(seed=0), torch.zeros(1, *SMALL_CIFAR))
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


@pytest.mark.parametrize(
    ("name", "shape", "layer", "fans"),
    [("twonn_superfed", MNIST, 0, 984), ("cnn5", CIFAR, 2, 25 * 96), ("vgg9", MNIST, 6, 768)],
)
def test_weights_are_drawn_xavier_normal(
    name: str, shape: tuple[int, ...], layer: int, fans: int
) -> None:
    """Deviation sqrt(2 / (fan_in + fan_out)): 784 + 200 for the first layer of twonn_superfed,
    25 * (32 + 64) for the second convolution of cnn5, 512 + 256 in vgg9's classifier.

    Of at least 51,200 normal numbers the sample deviation is off by 1 / sqrt(2 * 51,200) = 0.31 %
    of its value; six times that is 1.9 %.
    """
    network = flat(name, shape)
    drawn = network.tensors(network.fresh(seed=3))[layer]
    assert drawn.std().item() == pytest.approx((2 / fans) ** 0.5, rel=0.019)
    assert drawn.abs().max().item() > 3 * (2 / fans) ** 0.5, "normal, not uniform"


def test_biases_begin_at_zero_in_cnn5_and_anywhere_in_simplecnn() -> None:
    for name, at_zero in (("cnn5", True), ("simplecnn", False)):
        network = flat(name, CIFAR)
        biases = [t for t in network.tensors(network.fresh(seed=3)) if t.dim() == 1]
        assert len(biases) == 5
        assert all((bias.count_nonzero() == 0) == at_zero for bias in biases)


def test_only_the_superfed_resnet9_forgets_the_first_skip() -> None:
    """With no convolution left, a block with the identity skip gives its inputs back, ReLU'd."""
    x = inputs((64, 4, 4))
    for name, expected in (("resnet9", x.relu()), ("resnet9_superfed", torch.zeros_like(x))):
        body: Any = MODELS[name](CIFAR, 10).double().get_submodule("body")
        blocks = [part for part in body if isinstance(part, Residual)]
        assert [block.skip for block in blocks] == [name == "resnet9", True, True, True]
        for convolution in (blocks[0].conv1, blocks[0].conv2):
            nn.init.zeros_(convolution.weight)
        assert torch.equal(blocks[0](x), expected)


@pytest.mark.parametrize("name", ["resnet9", "mobilenet", "resnet18"])
def test_batch_statistics_mix_the_examples_and_groups_do_not(name: str) -> None:
    x = inputs((3, 37, 37))
    for norm in ("group", "batch"):
        network = Flat(lambda norm=norm: MODELS[name]((3, 37, 37), 10, norm=norm))  # type: ignore[misc]
        assert network.mixes_examples == (norm == "batch")
        w = network.fresh(seed=1).double()
        apart = network.logits(w, x[:2])
        # A convolution of two examples may sum in another order than one of four.
        assert torch.allclose(apart, network.logits(w, x)[:2], rtol=1e-9) == (norm == "group")


@pytest.mark.parametrize("name", ["stackedlstm", "stackedlstm_superfed"])
def test_a_stack_of_lstm_layers_draws_one_number_in_layer_mixing(name: str) -> None:
    """Embedding, LSTM stack, linear layer."""
    assert flat(name, TEXT).layers == 3


def test_the_superfed_lstm_is_drawn_as_the_authors_do() -> None:
    """Embedding N(0, 1); LSTM uniform within 1 / sqrt(256) = 0.0625, whose deviation is
    0.0625 / sqrt(3) = 0.0361; linear Xavier-normal, sqrt(2 / 356) = 0.0750. Of 800, 524,288 and
    25,600 numbers the sample deviation is off by 2.5 %, 0.1 % and 0.44 %; four times that."""
    network = flat("stackedlstm_superfed", TEXT, classes=100)
    embedding, _, _, second, _, last = network.tensors(network.fresh(seed=3))
    assert embedding.std().item() == pytest.approx(1, rel=0.1)
    assert second.abs().max().item() <= 0.0625
    assert second.std().item() == pytest.approx(0.0361, rel=0.004)
    assert last.std().item() == pytest.approx(0.0750, rel=0.018)


def test_a_text_may_have_more_symbols_than_there_are_classes() -> None:
    """Thirty symbols are 20 * 8 parameters more than the ten that ten classes bring."""
    build = MODELS["stackedlstm"]
    wide, narrow = (Flat(lambda v=v: build(TEXT, 10, vocabulary=v)) for v in (30, 0))  # type: ignore[misc]
    assert wide.size - narrow.size == 20 * 8
    wide.logits(wide.fresh(seed=0), torch.full((1, 80), 29))


CHOOSY = [name for name in MODELS if name not in ("mlp", "twonn", "twonn_superfed")]


@pytest.mark.parametrize("name", CHOOSY)
@pytest.mark.parametrize("shape", [(16, 2), (28, 28), (1, 3, 28)], ids=str)
def test_a_network_refuses_what_it_cannot_take(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(IsthmusError, match=f"{name} was given") as e:
        MODELS[name](shape, 10)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("cnn5", (3, 30, 30)),
        ("cnn5", (3, 28, 32)),
        ("transformer", (3, 30, 30)),
        ("resnet18", (2, 32, 32)),
        ("squeezenet", (4, 32, 32)),
        ("mobilenet", CIFAR),
        ("stackedlstm", (0,)),
    ],
)
def test_a_picture_that_does_not_fit_is_refused(name: str, shape: tuple[int, ...]) -> None:
    with raises(IsthmusError):
        MODELS[name](shape, 10)


@pytest.mark.parametrize("name", sorted({*CHOOSY} & {*PICTURES} - {"cnn5"}))
def test_the_least_size_that_a_refusal_names_is_enough(name: str) -> None:
    with pytest.raises(IsthmusError) as error:
        MODELS[name]((1, 1, 1), 10)
    (least,) = map(int, re.findall(r"at least (\d+) x", str(error.value)))
    network = flat(name, (1, least, least))
    # Two examples: batch statistics need more than one number, and the last map may have one place.
    assert network.logits(network.fresh(seed=0), torch.ones(2, 1, least, least)).shape == (2, 10)
    with pytest.raises(IsthmusError, match=f"{name} was given"):
        MODELS[name]((1, least, least - 1), 10)


def test_a_width_is_an_option() -> None:
    """64*5 + 5 + 5*10 + 10 = 385."""
    table = registry.complete("model", {"name": "mlp", "hidden": 5})
    assert Flat(lambda: registry.build("model", table, (1, 8, 8), 10)).size == 385


@pytest.mark.parametrize("hidden", [0, -1, 2.5, "wide"])
def test_a_width_that_is_none_is_refused(hidden: object) -> None:
    with raises(IsthmusError):
        registry.complete("model", {"name": "mlp", "hidden": hidden})


def test_an_unknown_normalisation_is_refused() -> None:
    with raises(IsthmusError):
        registry.complete("model", {"name": "resnet9", "norm": "layer"})
