"""Trees: mapped over any nesting, written and read back bit for bit, never read back wrongly."""

import json
import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from golden import raises
from isthmus import tree
from isthmus.errors import IsthmusError


class Inner(NamedTuple):
    b: Tensor
    nothing: tuple[()]


class Outer(NamedTuple):
    a: Tensor
    inner: Inner


def nested(start: float) -> Outer:
    return Outer(torch.tensor([start, start + 1]), Inner(torch.tensor(start), ()))


def bits(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


def packed(header: object, data: bytes = b"") -> bytes:
    """Writes bytes as `pack` does, with a header that may say anything."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return tree.MAGIC + len(text).to_bytes(4, "little") + text + data


def test_a_map_keeps_the_nesting_and_the_names() -> None:
    result = tree.map(lambda a, b: a + 10 * b, nested(1), nested(2))
    assert isinstance(result, Outer)
    assert isinstance(result.inner, Inner)
    assert result.a.tolist() == [21, 32]
    assert result.inner.b.item() == 21
    assert result.inner.nothing == ()
    assert tree.map(torch.neg, ()) == ()


def test_a_map_over_trees_of_different_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        tree.map(torch.add, (torch.ones(1), torch.ones(1)), (torch.ones(1),))


def test_a_row_of_a_stack_is_the_tree_that_was_stacked() -> None:
    trees = [nested(float(k)) for k in range(3)]
    stacked = tree.stack(trees)
    assert stacked.a.shape == (3, 2)
    assert stacked.inner.b.shape == (3,)
    for k, one in enumerate(trees):
        assert tree.pack(tree.row(stacked, k)) == tree.pack(one)
    assert tree.stack([(), ()]) == ()


def test_bytes_are_counted_over_all_tensors() -> None:
    """Two and one float32 of 4 bytes, one int64 of 8, three bools of 1: 8 + 4 + 8 + 3 = 23."""
    leaves = (nested(0.0), torch.tensor(7), torch.zeros(3, dtype=torch.bool))
    assert tree.nbytes(leaves) == 23
    assert tree.nbytes(()) == 0


@pytest.mark.parametrize("stray", [3, 0.5, None, [torch.ones(1)], {"w": torch.ones(1)}])
def test_what_is_no_tensor_is_refused_with_advice(stray: object) -> None:
    with pytest.raises(TypeError, match=f"contains {type(stray).__name__} .*wrap numbers with"):
        list(tree.leaves((torch.ones(1), (stray,))))


LEAVES = {
    "float32": torch.tensor([1.5, -0.0, math.inf, 1e-45]),
    "float64": torch.tensor([[0.1], [-math.inf]], dtype=torch.float64),
    "int64": torch.tensor([-(2**63), 2**63 - 1]),
    "bool": torch.tensor([True, False, True]),
    "0-d": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "transposed": torch.arange(6.0).reshape(2, 3).T,
}


@pytest.mark.parametrize("name", LEAVES)
def test_packing_and_unpacking_is_exact(name: str) -> None:
    leaf = LEAVES[name]
    found = tree.unpack(tree.pack((leaf, ())), like=(leaf, ()))[0]
    assert found.dtype == leaf.dtype
    assert found.shape == leaf.shape
    assert bits(found) == bits(leaf.contiguous())


def test_packing_keeps_the_payload_of_nan() -> None:
    """0x7fc12345 is a quiet nan whose mantissa carries 0x412345; 0xff800001 a signalling one."""
    patterns = torch.tensor([0x7FC12345, 0xFF800001 - 2**32], dtype=torch.int32)
    leaf = patterns.view(torch.float32)
    found = tree.unpack(tree.pack(leaf), like=leaf)
    assert found.isnan().all()
    assert found.view(torch.int32).tolist() == patterns.tolist()


def test_what_was_unpacked_owns_its_memory() -> None:
    data = tree.pack(torch.ones(2))
    tree.unpack(data, like=torch.ones(2)).add_(1)
    assert tree.unpack(data, like=torch.ones(2)).tolist() == [1, 1]


def test_every_truncation_is_refused() -> None:
    data = tree.pack(nested(1))
    for length in range(len(data)):
        with pytest.raises(IsthmusError):
            tree.unpack(data[:length], like=nested(0))
    assert tree.unpack(data, like=nested(0)).a.tolist() == [1, 2]


def test_bytes_after_the_last_tensor_are_refused() -> None:
    with raises(IsthmusError):
        tree.unpack(tree.pack(nested(1)) + b"\0", like=nested(0))


def test_foreign_bytes_are_refused() -> None:
    for data in (b"", b"PK\x03\x04" + bytes(60), b"isthmus2" + tree.pack(torch.ones(1))[8:]):
        with raises(IsthmusError):
            tree.unpack(data, like=torch.ones(1))


def test_another_number_of_tensors_is_refused() -> None:
    with raises(IsthmusError):
        tree.unpack(tree.pack(nested(1)), like=torch.ones(2))


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"\xff\xfe",
        b"[" * 10_000,
        5,
        None,
        {"a": 1},
        ["float32"],
        [["float32"]],
        [["float32", [1], 0]],
        [["float32", 1]],
        [["float32", [-1]]],
        [["float32", [-2, -2]]],
        [["float32", [1.0]]],
        [["float32", [True]]],
        [["float32", ["1"]]],
        [["float32", [0, 2**40, 2**40]]],
        [["float32", [10**4000]]],
        [["float33", [1]]],
        [["nn", [1]]],
        [["Tensor", [1]]],
        [["quint8", [1]]],
        [[["float32"], [1]]],
        [[None, [1]]],
    ],
    ids=lambda header: repr(header)[:40],
)
def test_a_header_that_lies_is_refused(header: Any) -> None:
    with raises(IsthmusError):
        tree.unpack(packed(header, bytes(16)), like=torch.ones(1))


def test_a_header_that_promises_more_than_there_is_is_refused_before_it_is_believed() -> None:
    """2^40 float32 would take 4 TiB."""
    with raises(IsthmusError):
        tree.unpack(packed([["float32", [2**40]]], bytes(16)), like=torch.ones(1))


def test_only_numbers_are_finite() -> None:
    assert tree.finite((nested(1), ()))
    assert tree.finite(torch.tensor([True, False]))
    assert tree.finite(torch.zeros(0))
    for bad in (math.nan, math.inf, -math.inf):
        assert not tree.finite((torch.ones(3), (torch.tensor([0.0, bad]),)))
    assert not tree.finite(torch.tensor([math.inf, -math.inf]))


def test_entries_are_finite_although_their_sum_is_not() -> None:
    """3e38 + 3e38 is above the largest float32, 3.4e38."""
    huge = torch.tensor([3e38, 3e38])
    assert huge.sum().isinf()
    assert tree.finite(huge)
    assert not tree.finite(torch.tensor([3e38, 3e38, math.nan]))


def test_a_digest_changes_with_one_bit() -> None:
    """-0.0 and 0.0 are equal and differ in one bit; so do 1 and the float after it."""
    one = torch.tensor([1.0, 0.0])
    after = torch.nextafter(one, torch.tensor([2.0, 0.0]))
    others = [after, torch.tensor([1.0, -0.0]), one.double(), one[None], one[:1]]
    names = {tree.digest([other]) for other in [one, *others]}
    assert len(names) == 6
    assert tree.digest([one.clone()]) in names
