"""Products of matrices as they are fastest, in programs that torch compiles.

The gradient of a network, as one vector, is its tensors' gradients one after another, and most of
these are products of matrices. Torch's compiler has each product written to memory of its own and
copied from there: of the seven vectors that a step of plain SGD then reads and writes, two are the
copy. Here a product writes its result into the vector.

And where a layer is large and a batch is small, nearly all of a product's time goes into reading
the layer, which the library does twice as fast if the layer is the first of the two factors.

This is the one place that knows torch's compiler from inside.
"""

from typing import Any

import torch
from torch import fx
from torch._inductor import ir
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.lowering import register_lowering

LARGE = 1 << 20  # entries of a layer from which on its place among the factors tells,
SMALL = 32  # and examples up to which it does

Node = Any  # an fx.Node, whose arguments may be anything

aten = torch.ops.aten
RESHAPED = (aten.reshape.default, aten.view.default)

library: Any = torch.library.Library("isthmus", "DEF")  # type: ignore[no-untyped-call]
library.define("join(Tensor[] parts) -> Tensor")
library.impl("join", lambda parts: torch.cat(parts), "CompositeExplicitAutograd")
join = torch.ops.isthmus.join.default


class ProductPass(CustomGraphPass):
    """Rewrites a program before it is compiled: turns some products round, joins others."""

    def __call__(self, graph: fx.Graph) -> None:
        """Rewrites the operations of a program."""
        for node in graph.find_nodes(op="call_function", target=aten.addmm.default):
            if _should_turn(node):
                _replace(node, _turn(node))
        for node in graph.find_nodes(op="call_function", target=aten.cat.default):
            if _should_join(node):
                _replace(node, _call(node, join, node.args[0]))

    def uuid(self) -> Any:
        """Names this version: programs that another one left on disk are not used."""
        return get_hash_for_files((__file__,))


def _should_turn(node: Node) -> bool:
    """Tells whether a layer is large, a batch small, and the layer laid out as layers are."""
    _, x, layer = node.args
    examples, entries = x.meta["val"].shape[0], layer.meta["val"].numel()
    across = layer.meta["val"].stride() == (1, layer.meta["val"].shape[0])
    return bool(across and not node.kwargs and examples <= SMALL and entries >= LARGE)


def _turn(node: Node) -> Node:
    """Writes bias + x W^T as bias + (W x^T)^T."""
    bias, x, layer = node.args
    first = _call(node, aten.permute.default, layer, [1, 0])
    second = _call(node, aten.permute.default, x, [1, 0])
    product = _call(node, aten.mm.default, first, second)
    upright = _call(node, aten.permute.default, product, [1, 0])
    return _call(node, aten.add.Tensor, upright, bias)


def _should_join(node: Node) -> bool:
    """Tells whether a vector is put together from products of matrices, among others."""
    return node.meta["val"].dim() == 1 and any(
        part.target in RESHAPED and part.args[0].target is aten.mm.default for part in node.args[0]
    )


def _call(node: Node, target: Any, *arguments: Any) -> Node:
    """Adds the call of an operation before a node."""
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
        """Has a part computed where it belongs, or copied there if that cannot be."""
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
    """Gives the product that a part is, all of it, its rows one after another; else None."""
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
