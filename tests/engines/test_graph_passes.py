"""What is changed in compiled programs: products of matrices, sums, and numbers for vectors."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from isthmus.engines import native
from isthmus.engines.compiled import Compiled, has_compiler

if not native.load():
    pytest.skip(f"made for the compiler of {native.list_known()}", allow_module_level=True)

from isthmus.engines.native.graph_passes import (
    LARGE,
    LONG,
    SMALL,
    JoinedInPlace,
    StepPass,
    join,
    keep,
)

aten = torch.ops.aten


def gone_over(function: Callable[..., Tensor], *inputs: Tensor) -> list[Any]:
    """Gives the operations of a program that the pass has gone over, having run it."""
    program = make_fx(function, {aten.t.default: lambda x: x.permute(1, 0)}, "fake")(*inputs)
    StepPass()(program.graph)
    program.graph.lint()
    program.recompile()
    assert torch.allclose(program(*inputs), function(*inputs), atol=1e-4)
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def gradient(g: Tensor, x: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([(g.T @ x).reshape(-1), bias, (x.T @ g).reshape(-1)])


def layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight.permute(1, 0))


def test_a_vector_of_products_is_joined_and_any_other_is_not() -> None:
    a, b = torch.randn(4, 2), torch.randn(4, 3)
    assert join in gone_over(gradient, a, b, a[0])
    assert join not in gone_over(lambda a, b: torch.cat([a[0], b[0].exp()]), a, b)
    assert join not in gone_over(lambda a, b: torch.cat([a.T @ b, a.T @ b]), a, b)


@pytest.mark.parametrize(
    ("examples", "entries", "turned"),
    [(SMALL, LARGE, True), (SMALL + 1, LARGE, False), (SMALL, LARGE // 2, False)],
)
def test_a_large_layer_comes_first_where_the_batch_is_small(
    examples: int, entries: int, turned: bool
) -> None:
    x, weight = torch.randn(examples, 64), torch.randn(entries // 64, 64) / 8
    operations = gone_over(layer, x, weight, torch.randn(entries // 64))
    assert (aten.mm.default in operations) is turned
    assert (aten.addmm.default in operations) is not turned
    upright = torch.randn(64, entries // 64)  # laid out otherwise, it stays where it is
    assert aten.addmm.default in gone_over(torch.addmm, upright[0], x, upright)


@pytest.mark.parametrize(
    ("size", "sums"), [(LONG, 2), (LONG + 5, 3), (LONG - 1, 1)], ids=["rows", "rest", "short"]
)
def test_a_long_vector_is_summed_up_by_rows(size: int, sums: int) -> None:
    operations = gone_over(lambda a: (a * a).sum(), torch.randn(size))
    by_rows = operations.count(aten.sum.dim_IntList)
    assert by_rows + operations.count(aten.sum.default) == sums
    assert by_rows == (sums > 1)


def test_a_number_is_computed_before_the_vectors_that_it_enters() -> None:
    """But not one that is given, nor one that enters none."""
    a, number = torch.randn(LONG), torch.tensor(2.0)
    assert gone_over(lambda a, n: a * (1 / n), a, number).count(keep) == 1
    assert gone_over(lambda a, n: a * n, a, number).count(keep) == 0
    assert gone_over(lambda a, n: a[:3] * (1 / n), a, number).count(keep) == 0


@pytest.mark.parametrize("value", [1, -1, 0.5])
def test_a_product_that_is_added_is_written_as_such(value: float) -> None:
    a, b, c = torch.randn(3, 7)
    operations = gone_over(lambda a, b, c: a.addcmul(b, c, value=value), a, b, c)
    assert aten.mul.Tensor in operations
    assert aten.addcmul.default not in operations


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Records by what each part of a joined vector is computed."""
    kinds: dict[str, str] = {}
    realize = JoinedInPlace.realize_into

    def recorded(_: type[JoinedInPlace], src: Any, dst: Any) -> Any:
        part = realize(src, dst)
        kinds[part.get_name()] = type(part).__name__
        return part

    monkeypatch.setattr(JoinedInPlace, "realize_into", classmethod(recorded))
    with torch._inductor.config.patch(fx_graph_cache=False):
        yield kinds


def program(function: Callable[..., Any], *inputs: Tensor) -> Any:
    """Runs a function as programs of steps are run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what it does itself
        return torch.compile(function, backend=Compiled(8, layers=1).compile)(*inputs)


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
def test_products_are_written_into_the_vector_without_a_copy(parts: dict[str, str]) -> None:
    """Of the parts, the two products are computed by the library, and the third is copied."""
    g, x, bias = torch.randn(8, 5), torch.randn(8, 7), torch.randn(3)
    assert torch.allclose(program(gradient, g, x, bias), gradient(g, x, bias), atol=1e-5)
    assert sorted(parts.values()) == ["ComputedBuffer", "ExternKernelOut", "ExternKernelOut"]


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
def test_a_product_that_others_need_too_is_still_there_for_them(parts: dict[str, str]) -> None:
    """It is twice in one vector, once in another, and read after both have been overwritten."""

    def step(v: Tensor, w: Tensor, g: Tensor, x: Tensor) -> Tensor:
        product = g.T @ x
        one = torch.cat([product.reshape(-1), v[:1], product.reshape(-1)])
        other = torch.cat([w[:1], product.reshape(-1)])
        v.add_(one * 2)
        w.mul_(other.exp())
        return (product * 3).sum(0) + v[0]

    g, x = torch.randn(8, 5), torch.randn(8, 7)
    found, expected = [(torch.ones(71), torch.ones(36), g, x) for _ in range(2)]
    assert torch.allclose(program(step, *found), step(*expected), atol=1e-4)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found, expected, strict=True))
    assert list(parts.values()).count("ExternKernelOut") == 1
