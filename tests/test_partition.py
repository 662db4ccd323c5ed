"""Partitions: every example to one client, and the classes each of them promises."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from isthmus.data.partition import Iid, Pathological
from isthmus.errors import IsthmusError
from isthmus.streams import stream

Labels = NDArray[np.int64]

ALL = [
    Iid(),
    Pathological(),
    Pathological(assignment="strided"),
    Pathological(shards=5),
    Pathological(shards=1, assignment="strided"),
]


def balanced(each: int = 100, classes: int = 10) -> Labels:
    return stream(0, "labels").permutation(np.repeat(np.arange(classes), each))


def cut(partition: Iid | Pathological, y: Labels, clients: int, seed: int = 1) -> list[Labels]:
    return partition.cut(y, clients, stream(seed, "partition"))


def classes_of(y: Labels, shares: list[Labels]) -> list[tuple[int, ...]]:
    return [tuple(np.unique(y[share]).tolist()) for share in shares]


@pytest.mark.parametrize("partition", ALL, ids=repr)
@pytest.mark.parametrize("examples", [1000, 997])
def test_every_example_goes_to_one_client(partition: Iid | Pathological, examples: int) -> None:
    y = balanced()[:examples]
    shares = cut(partition, y, clients=20)
    assert len(shares) == 20
    assert sorted(np.concatenate(shares).tolist()) == list(range(examples))


@pytest.mark.parametrize("partition", ALL, ids=repr)
def test_a_seed_decides_the_partition(partition: Iid | Pathological) -> None:
    y = balanced()
    again = [cut(partition, y, 20, seed=1), cut(partition, y, 20, seed=1)]
    other = cut(partition, y, 20, seed=2)
    assert all(np.array_equal(a, b) for a, b in zip(*again, strict=True))
    assert any(set(a) != set(b) for a, b in zip(again[0], other, strict=True))


@pytest.mark.parametrize("partition", ALL, ids=repr)
def test_sizes_are_equal_where_the_numbers_divide(partition: Iid | Pathological) -> None:
    """1,000 examples over 20 clients: 50 each, whatever the 20, 40 or 100 shards."""
    assert {len(share) for share in cut(partition, balanced(), clients=20)} == {50}


def test_sizes_differ_by_one_shard_rest_at_most() -> None:
    """997 = 20 * 49 + 17 for iid; 997 = 40 * 24 + 37, so that two shards have 48 to 50."""
    y = balanced()[:997]
    assert Counter(len(share) for share in cut(Iid(), y, 20)) == {50: 17, 49: 3}
    assert {len(share) for share in cut(Pathological(), y, 20)} <= {48, 49, 50}


def test_iid_clients_have_every_class() -> None:
    """Of 100 examples a client misses one class of ten with probability 10 * 0.9^100 = 3e-4, ten
    clients some class with 3e-3; this seed is one of the others."""
    y = balanced()
    assert all(len(classes) == 10 for classes in classes_of(y, cut(Iid(), y, 10)))


@pytest.mark.parametrize("assignment", ["random", "strided"])
def test_two_shards_hold_two_classes_at_most_where_shards_fit_into_classes(assignment: str) -> None:
    """40 shards of 25 fit four times into each class of 100."""
    y = balanced()
    shares = cut(Pathological(2, assignment), y, clients=20)  # type: ignore[arg-type]
    assert max(len(classes) for classes in classes_of(y, shares)) == 2


@pytest.mark.parametrize("assignment", ["random", "strided"])
def test_a_straddling_shard_adds_one_class(assignment: str) -> None:
    """Classes of these sizes end at 90, 200, 295, 400, 530, 600, 699, 800 and 920.

    Shards of 50 or of 25 end at multiples of 25, so that the five borders 90, 295, 530, 699 and 920
    each cut a shard in two. With one shard each, five of 20 clients have two classes; with two, a
    client has a third class for one straddling shard and a fourth if it has two of them, and all
    clients together have no more than five too many.
    """
    sizes = [90, 110, 95, 105, 130, 70, 99, 101, 120, 80]
    y = stream(0, "labels").permutation(np.repeat(np.arange(10), sizes))

    def too_many(shards: int, seed: int) -> Counter[int]:
        shares = cut(Pathological(shards, assignment), y, 20, seed)  # type: ignore[arg-type]
        return Counter(max(0, len(classes) - shards) for classes in classes_of(y, shares))

    for seed in range(5):
        assert too_many(1, seed) == {0: 15, 1: 5}
        extra = too_many(2, seed)
        assert set(extra) <= {0, 1, 2}
        assert 0 < extra[1] + 2 * extra[2] <= 5


def test_strided_assignment_knows_five_kinds_of_clients() -> None:
    """Client i gets shards i and i + 20 of 40; four shards are a class: classes i // 4 and
    i // 4 + 5."""
    y = balanced()
    pairs = classes_of(y, cut(Pathological(assignment="strided"), y, clients=20))
    assert pairs == [(i // 4, i // 4 + 5) for i in range(20)]


def test_random_assignment_knows_other_pairs() -> None:
    """A client's second shard is of the class c + 5 with probability 4 / 39: that all 20 are has
    a probability far below 1e-15."""
    y = balanced()
    pairs = set(classes_of(y, cut(Pathological(), y, clients=20)))
    assert not pairs <= {(c, c + 5) for c in range(5)}


def test_the_order_inside_a_class_is_random() -> None:
    """With one class and one shard each, who gets which example must depend on the seed."""
    y = np.zeros(40, np.int64)
    strided = Pathological(shards=1, assignment="strided")
    assert set(cut(strided, y, 2, seed=1)[0]) != set(cut(strided, y, 2, seed=2)[0])


def test_sixty_thousand_examples_are_cut_for_a_thousand_clients() -> None:
    """60,000 / 2,000 shards = 30, two of them 60; classes of 6,000 hold 200 shards each."""
    y = balanced(each=6000)
    shares = cut(Pathological(), y, clients=1000)
    assert {len(share) for share in shares} == {60}
    assert len(np.unique(np.concatenate(shares))) == 60_000
    assert max(len(classes) for classes in classes_of(y, shares)) == 2


def test_as_many_clients_as_examples_get_one_each() -> None:
    y = balanced(each=2)
    assert [len(share) for share in cut(Iid(), y, clients=20)] == [1] * 20
    assert [len(share) for share in cut(Pathological(), y, clients=10)] == [2] * 10


def test_more_clients_than_examples_are_refused_in_one_line() -> None:
    y = balanced(each=2)
    with pytest.raises(IsthmusError, match=r"21 clients asked for, .* only 20 examples") as iid:
        cut(Iid(), y, clients=21)
    with pytest.raises(IsthmusError, match=r"22 shards \(2 x 11 clients\)") as shards:
        cut(Pathological(), y, clients=11)
    assert all("\n" not in str(e.value) and "lower clients" in str(e.value) for e in (iid, shards))
