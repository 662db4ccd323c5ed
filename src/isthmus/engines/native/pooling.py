"""A convolution, its ReLU and 2 x 2 max pooling as one operation of compiled steps.

Small networks spend most of a step there. Done one after another, the three write and read four
times what comes out in the end, and the gradient of the convolution is computed for all places,
though it is zero at three of four: pooling passes it on to the largest alone. `pooling.cpp` writes
nothing in between, and looks at no place without gradient. A ReLU may leak: then it has a slope.

It is built by the toolchain of torch's own compiler, once for each machine; where that cannot be,
programs are made as torch makes them.
"""

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

SOURCE = Path(__file__).with_suffix(".cpp")
MOST_CHANNELS = 128  # channels of an image: more have not been measured
FLAGS = ("-O3", "-ffp-contract=fast")

CONVOLUTION = dict.fromkeys(("input", "weight", "bias")) | {
    "stride": 1,
    "padding": 0,
    "dilation": 1,
    "groups": 1,
}
POOL = dict.fromkeys(("input", "kernel_size", "stride")) | {
    "padding": 0,
    "dilation": 1,
    "ceil_mode": False,
    "return_indices": False,
}
RELU = {"input": None, "negative_slope": 0.01}
RELUS = (nn.functional.relu, torch.relu)

Node = Any  # an fx.Node, whose arguments may be anything


@cache
def load_kernels() -> ctypes.CDLL | None:
    """Build and load what `pooling.cpp` has; None where that cannot be done."""
    try:
        from torch._inductor.codecache import CppCodeCache

        library = CppCodeCache.load(SOURCE.read_text(encoding="utf-8"), "cpu", extra_flags=FLAGS)
    except Exception:  # whatever a compiler, or another version of torch, has to say
        return None
    return library if isinstance(library, ctypes.CDLL) else None


class Shape(NamedTuple):
    """What the kernels are told of their tensors, in this order."""

    images: int
    channels: int
    height: int
    width: int
    out: int
    side: int
    padding: int

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, padding: int) -> "Shape":
        """Read it from images [n, channels, height, width] and filters [out, channels, ...]."""
        images, channels, height, width = x.shape
        out, _, side, _ = weight.shape
        return cls(images, channels, height, width, out, side, padding)

    def make_results(self) -> tuple[Tensor, Tensor]:
        """Make room for what is pooled and for where it is from, with channels last."""
        tall, broad = (
            (length + 2 * self.padding - self.side + 1) // 2 for length in (self.height, self.width)
        )
        shape, order = (self.images, self.out, tall, broad), torch.channels_last
        return (
            torch.empty(shape, dtype=torch.float32, memory_format=order),
            torch.empty(shape, dtype=torch.uint8, memory_format=order),
        )


def _run(name: str, shape: Shape, slope: float, *tensors: Tensor | None) -> None:
    kernels = load_kernels()
    assert kernels is not None
    addresses = (ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors)
    numbers = (ctypes.c_int64 * len(shape))(*shape), ctypes.c_float(slope)
    getattr(kernels, name)(*numbers, *addresses)


def _put_channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@torch.library.custom_op("isthmus::pool_convolution", mutates_args=())
def pool_convolution(
    x: Tensor, weight: Tensor, bias: Tensor, padding: int, slope: float
) -> tuple[Tensor, Tensor]:
    """Return what `pool_images` does, and which of four places each value is from."""
    shape = Shape.of(x, weight, padding)
    pooled, chosen = shape.make_results()
    given = _put_channels_last(x), _put_channels_last(weight), bias.contiguous()
    _run("pool_convolution", shape, slope, *given, pooled, chosen)
    return pooled, chosen


@pool_convolution.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, padding: int, slope: float) -> tuple[Tensor, Tensor]:
    return Shape.of(x, weight, padding).make_results()


@torch.library.custom_op("isthmus::differentiate_pool", mutates_args=())
def differentiate_pool(
    gradient: Tensor,
    chosen: Tensor,
    x: Tensor,
    weight: Tensor,
    padding: int,
    slope: float,
    of_images: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of weights, bias and images; the last is empty if it is not wanted."""
    x, filters, gradient, chosen = map(_put_channels_last, (x, weight, gradient, chosen))
    of_weights, of_bias = torch.empty_like(filters), weight.new_empty(len(weight))
    of_x = torch.empty_like(x) if of_images else x.new_empty(0)
    results = of_weights, of_bias, of_x if of_images else None
    shape = Shape.of(x, weight, padding)
    _run("differentiate_pool", shape, slope, x, filters, gradient, chosen, *results)
    return of_weights.contiguous(), of_bias, of_x


@differentiate_pool.register_fake
def _(
    gradient: Tensor,
    chosen: Tensor,
    x: Tensor,
    weight: Tensor,
    padding: int,
    slope: float,
    of_images: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    of_x = torch.empty_like(_put_channels_last(x)) if of_images else x.new_empty(0)
    return weight.new_empty(weight.shape), weight.new_empty(len(weight)), of_x


class Pooling(torch.autograd.Function):
    """The operation as something that can be differentiated, once, by torch.func too."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, padding: int, slope: float
    ) -> tuple[Tensor, Tensor]:
        """Compute both of its results."""
        pooled, chosen = pool_convolution(x, weight, bias, padding, slope)
        return pooled, chosen

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the gradient needs."""
        x, weight, _, *ctx.numbers = inputs
        ctx.save_for_backward(output[1], x, weight)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of weights and bias, and of images where they are wanted."""
        wanted = ctx.needs_input_grad[0]
        with torch.no_grad():  # never differentiated again: see fuse_pooling
            of_weights, of_bias, of_x = differentiate_pool(
                gradients[0], *ctx.saved_tensors, *ctx.numbers, wanted
            )
        return of_x if wanted else None, of_weights, of_bias, None, None


def pool_images(
    x: Tensor, weight: Tensor, bias: Tensor, padding: int = 0, slope: float = 0.0
) -> Tensor:
    """Return max_pool2d(leaky_relu(conv2d(x, weight, bias, padding=padding), slope), 2)."""
    pooled: Tensor = Pooling.apply(x, weight, bias, padding, slope)[0]  # type: ignore[no-untyped-call]
    return pooled


def fuse_pooling(graph: fx.GraphModule) -> int:
    """Replace every convolution, ReLU and pooling, one after another, by the one operation.

    Return how many were replaced.
    """
    if _transforms_twice(graph.graph):  # how to differentiate a gradient of it is not known
        return 0
    replaced = 0
    pools = graph.graph.find_nodes(op="call_function", target=nn.functional.max_pool2d)
    for pool in pools:
        convolution = _find_convolution(pool)
        if convolution is not None and load_kernels() is not None:
            _replace(convolution, pool)
            replaced += 1
    graph.recompile()
    return replaced


def _transforms_twice(graph: fx.Graph) -> bool:
    """Whether anything but one gradient is taken: one of a gradient, or another transform."""
    depth = 0
    for node in graph.nodes:
        name = getattr(node.target, "__name__", "")
        if name.endswith("_increment_nesting"):
            depth += 1
            if depth > 1 or name != "_grad_increment_nesting":
                return True
        elif name.endswith("_decrement_nesting"):
            depth -= 1
    return False


def _find_convolution(pool: Node) -> Node | None:
    """Return the convolution whose ReLU is pooled; None where it cannot be replaced."""
    given = _read(pool, POOL)
    halves = _is(given["kernel_size"], 2) and given["stride"] in (None, 2, (2, 2))
    usual = _is(given["padding"], 0) and _is(given["dilation"], 1)
    if not halves or not usual or given["ceil_mode"] or given["return_indices"]:
        return None
    relu = given["input"]
    slope = _read_slope(relu)
    if slope is None or slope < 0 or len(relu.users) > 1:  # a slope below 0 makes small ones large
        return None
    convolution = _read(relu, RELU)["input"]
    if convolution.target is not torch.conv2d or len(convolution.users) > 1:
        return None
    return convolution if _is_known(**_read(convolution, CONVOLUTION)) else None


def _read_slope(relu: Node) -> float | None:
    """Read the slope below zero of a ReLU, None if it is none."""
    if relu.target in RELUS:
        return 0.0
    is_leaky = relu.target is nn.functional.leaky_relu
    return float(_read(relu, RELU)["negative_slope"]) if is_leaky else None


def _read(call: Node, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Read the arguments of a call by their names."""
    return {**defaults, **dict(zip(defaults, call.args, strict=False)), **call.kwargs}


def _is_known(
    input: Node, weight: Node, bias: Node, stride: Any, padding: Any, dilation: Any, groups: int
) -> bool:
    """Whether a convolution is one that the kernels compute, and faster."""
    images, filters = input.meta["example_value"], weight.meta["example_value"]
    return (
        images.dim() == 4
        and images.dtype == filters.dtype == torch.float32
        and images.device.type == "cpu"
        and filters.shape[2] == filters.shape[3]
        and filters.shape[1] <= MOST_CHANNELS
        and bias is not None
        and _is(stride, 1)
        and _is(dilation, 1)
        and groups == 1
        and _read_padding(padding) is not None
    )


def _read_padding(padding: Any) -> int | None:
    """Read what is put around an image, None where sides differ or it goes by a name."""
    first = padding[0] if isinstance(padding, tuple) else padding
    return first if isinstance(first, int) and _is(padding, first) else None


def _is(pair: Any, number: int) -> bool:
    return pair in (number, (number, number))


def _replace(convolution: Node, pool: Node) -> None:
    graph, relu, given = pool.graph, _read(pool, POOL)["input"], _read(convolution, CONVOLUTION)
    tensors = (given["input"], given["weight"], given["bias"])
    numbers = (_read_padding(given["padding"]), _read_slope(relu))
    with graph.inserting_before(pool):
        pooled = graph.call_function(pool_images, (*tensors, *numbers))
    pooled.meta = dict(pool.meta)
    pool.replace_all_uses_with(pooled)
    for node in (pool, relu, convolution):
        graph.erase_node(node)
