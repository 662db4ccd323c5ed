"""Steps as they are fastest, in programs that torch compiles.

The gradient of a network, as one vector, is its tensors' gradients one after another, and most of
these are products of matrices. Torch's compiler has each product written to memory of its own and
copied from there: of the seven vectors that a step of plain SGD then reads and writes, two are the
copy. Here a product writes its result into the vector. And where a layer is large and a batch is
small, nearly all of a product's time goes into reading the layer, which the library does twice as
fast if the layer is the first of the two factors.

What a step does with vectors is arranged for the loops that the compiler makes of it. Numbers that
belong to a whole vector are computed before its loop, not once for every eight entries; a product
that is added is written as such, which processors do at once; sums over a vector are taken row by
row, as the compiler's own way of adding up long vectors waits for memory at every entry. And where
a program takes several steps, each writes its result over what it started from.

This and isthmus.engines.native.pooling are the places that know torch's compiler from inside.
"""

from typing import Any

import torch
from torch import fx
from torch._inductor import ir
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.lowering import mutate_to, register_lowering

LARGE = 1 << 20  # entries of a layer from which on its place among the factors matters,
SMALL = 32  # and examples up to which it does
LONG = 1 << 13  # entries of a vector from which on it is summed up by rows
ROW = 1 << 11  # entries

Node = Any  # an fx.Node, whose arguments may be anything

aten = torch.ops.aten
RESHAPED = (aten.reshape.default, aten.view.default)

library: Any = torch.library.Library("isthmus", "DEF")  # type: ignore[no-untyped-call]
library.define("join(Tensor[] parts) -> Tensor")
library.impl("join", lambda parts: torch.cat(parts), "CompositeExplicitAutograd")
join = torch.ops.isthmus.join.default

library.define("keep(Tensor number) -> Tensor")
library.impl("keep", torch.clone, "CompositeExplicitAutograd")
keep = torch.ops.isthmus.keep.default

library.define("place(Tensor[] values, Tensor[] where) -> Tensor[]")
library.impl("place", lambda values, _: [*map(torch.clone, values)], "CompositeExplicitAutograd")
place = torch.ops.isthmus.place.default  # in a program, `where` is lost


class StepPass(CustomGraphPass):
    """Rewrites a program before it is compiled."""

    def __call__(self, graph: fx.Graph) -> None:
        """Rewrite the operations of a program."""
        for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
            if _should_turn(node):
                _replace(node, _turn(node))
        for node in graph.find_nodes(op="call_function", target=aten.cat.default):
            if _should_join(node):
                _replace(node, _call(node, join, node.args[0]))
        for node in graph.find_nodes(op="call_function", target=aten.addcmul.default):
            _replace(node, _write_out(node))
        for node in graph.find_nodes(op="call_function", target=aten.sum.default):
            if _is_vector(node.args[0]):
                _replace(node, _sum_by_rows(node))
        for node in list(graph.nodes):
            if _is_number(node):
                _keep_for_vectors(node)

    def uuid(self) -> Any:
        """Name this version: programs that another one left on disk are not used."""
        return get_hash_for_files((__file__,))


def _should_turn(node: Node) -> bool:
    """Whether a layer is large, a batch small, and the layer laid out as layers are."""
    _, x, layer = node.args
    examples, entries = x.meta["val"].shape[0], layer.meta["val"].numel()
    across = layer.meta["val"].stride() == (1, layer.meta["val"].shape[0])
    return bool(across and not node.kwargs and examples <= SMALL and entries >= LARGE)


def _turn(node: Node) -> Node:
    """Write bias + x W^T as bias + (W x^T)^T."""
    bias, x, layer = node.args
    first = _call(node, aten.permute.default, layer, [1, 0])
    second = _call(node, aten.permute.default, x, [1, 0])
    product = _call(node, aten.mm.default, first, second)
    upright = _call(node, aten.permute.default, product, [1, 0])
    return _call(node, aten.add.Tensor, upright, bias)


def _should_join(node: Node) -> bool:
    """Whether a vector is put together from products of matrices, among others."""
    return node.meta["val"].dim() == 1 and any(
        part.target in RESHAPED and part.args[0].target is aten.mm.default for part in node.args[0]
    )


def _write_out(node: Node) -> Node:
    """Write addcmul as the product and the sum that it is."""
    start, first, second = node.args
    product, factor = _call(node, aten.mul.Tensor, first, second), node.kwargs.get("value", 1)
    if factor == -1:
        return _call(node, aten.sub.Tensor, start, product)
    if factor != 1:
        product = _call(node, aten.mul.Tensor, product, factor)
    return _call(node, aten.add.Tensor, start, product)


def _sum_by_rows(node: Node) -> Node:
    """Sum up a vector by rows, and what is left over."""
    vector = node.args[0]
    size = vector.meta["val"].numel()
    rows = size // ROW
    table = _call(node, aten.slice.Tensor, vector, 0, 0, rows * ROW)
    table = _call(node, aten.view.default, table, [rows, ROW])
    total = _call(node, aten.sum.default, _call(node, aten.sum.dim_IntList, table, [1]))
    if size == rows * ROW:
        return total
    rest = _call(node, aten.slice.Tensor, vector, 0, rows * ROW, size)
    return _call(node, aten.add.Tensor, total, _call(node, aten.sum.default, rest))


def _is_vector(node: Node) -> bool:
    """Whether a node is a long vector of floating-point numbers."""
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.dim() == 1
        and value.numel() >= LONG
        and value.is_floating_point()
    )


def _is_number(node: Node) -> bool:
    """Whether a node computes a single number."""
    value = node.meta.get("val")
    single = isinstance(value, torch.Tensor) and value.numel() == 1 and value.is_floating_point()
    return bool(single and node.op == "call_function")


def _keep_for_vectors(node: Node) -> None:
    """Compute a number before the loops over vectors that use it."""
    users = [user for user in node.users if _is_vector(user)]
    if users:
        kept = _call(node.next, keep, node)
        for user in users:
            user.replace_input_with(node, kept)


def _call(node: Node, target: Any, *arguments: Any) -> Node:
    """Add the call of an operation before a node."""
    with node.graph.inserting_before(node):
        new = node.graph.call_function(target, arguments)
    new.meta["val"] = target(*fx.map_arg(arguments, lambda argument: argument.meta["val"]))
    return new


def _replace(old: Node, new: Node) -> None:
    old.replace_all_uses_with(new)
    old.graph.erase_node(old)


class JoinedInPlace(ir.ConcatKernel):
    """A vector whose parts are computed in place, products of matrices among them."""

    @classmethod
    def realize_into(cls, src: Any, dst: Any) -> Any:
        """Compute a part where it belongs, or copy it there if that is impossible."""
        part = src.data if isinstance(src, ir.TensorBox) else src
        product = _find_product(part)
        if product is None:
            return super().realize_into(src, dst)
        vector, place = ir.as_storage_and_layout(dst)
        rows = product.layout
        here = ir.FixedLayout(rows.device, rows.dtype, rows.size, rows.stride, place.offset)
        product.layout = ir.NonOwningLayout(ir.ReinterpretView(data=vector, layout=here))
        return product


def _find_product(part: Any) -> Any:
    """Return the product that a part is, all of it, its rows one after another; else None."""
    box: Any = part.data if isinstance(part, ir.ReinterpretView) else None
    product = getattr(box, "data", None)
    rows = getattr(product, "layout", None)
    whole = (
        isinstance(product, ir.ExternKernelOut)
        and isinstance(rows, ir.FixedLayout)  # else it is in another vector already
        and rows.is_contiguous()
        and rows.offset == part.layout.offset == 0
        and [rows.size[0] * rows.size[1]] == part.layout.size
    )
    return product if whole else None


@register_lowering(join, type_promotion_kind=None)
def _join(parts: list[Any]) -> Any:
    return ir.TensorBox(JoinedInPlace.create(parts, 0))


@register_lowering(keep, type_promotion_kind=None)
def _keep(number: Any) -> Any:
    number.realize()
    return number


@register_lowering(place, type_promotion_kind=None)
def _place(values: list[Any], where: list[Any]) -> list[Any]:
    for value in values:
        value.realize()  # all are computed from what is there before any is written
    for value, old in zip(values, where, strict=True):
        mutate_to(old, value)  # type: ignore[no-untyped-call]
    return where
