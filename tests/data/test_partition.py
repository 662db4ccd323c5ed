"""Partitions: every example to one client, and the classes each of them promises."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from golden import raises
from isthmus import Experiment
from isthmus.data import PARTITIONS
from isthmus.data.named.mnist import Mnist
from isthmus.data.partitions.dirichlet import DirichletClasswise, DirichletClientwise, DirichletHsu
from isthmus.data.partitions.division import Division, Partition
from isthmus.data.partitions.groups import FiveFold, Semantic
from isthmus.data.partitions.natural import Natural
from isthmus.data.partitions.plain import Iid, Pathological, Quantity
from isthmus.errors import IsthmusError
from isthmus.run.build import read_federation
from isthmus.streams import stream

Labels = NDArray[np.int64]

EQUAL: list[Partition] = [
    Iid(),
    Pathological(),
    Pathological(assignment="strided"),
    Pathological(assignment="neighbours"),
    Pathological(shards=5),
    Pathological(shards=5, assignment="neighbours"),
    Pathological(shards=1, assignment="strided"),
    DirichletClientwise(),
    DirichletClientwise(beta=0.01),
    DirichletHsu(),
    DirichletHsu(alpha=0.01),
    FiveFold(),
    FiveFold(rest="all", folds=2),
]
UNEQUAL: list[Partition] = [
    DirichletClasswise(),
    DirichletClasswise(alpha=0.01),
    Quantity(),
    Quantity(alpha=0.01),
]
PARTIAL: list[Partition] = [
    DirichletClasswise(alpha=0.01, short="drop"),
    Semantic(smallest=10, largest=80),
    Semantic(groups=3, smallest=1, largest=9),
]
COMPLETE = EQUAL + UNEQUAL
ALL = COMPLETE + PARTIAL


def balanced(each: int = 100, classes: int = 10) -> Labels:
    return stream(0, "labels").permutation(np.repeat(np.arange(classes), each))


def divided(partition: Partition, y: Labels, clients: int, seed: int = 1) -> Division:
    return partition.cut(y, clients, stream(seed, "partition"))


def cut(partition: Partition, y: Labels, clients: int, seed: int = 1) -> list[Labels]:
    return divided(partition, y, clients, seed).shares


def classes_of(y: Labels, shares: list[Labels]) -> list[tuple[int, ...]]:
    return [tuple(np.unique(y[share]).tolist()) for share in shares]


def test_the_tables_here_hold_every_partition() -> None:
    """But `natural`, which divides by owners and not by labels: see test_natural.py."""
    assert {type(partition) for partition in ALL} == set(PARTITIONS.values()) - {Natural}


@pytest.mark.parametrize("partition", COMPLETE, ids=repr)
@pytest.mark.parametrize("examples", [1000, 997])
def test_every_example_goes_to_one_client(partition: Partition, examples: int) -> None:
    y = balanced()[:examples]
    shares = cut(partition, y, clients=20)
    assert len(shares) == 20
    assert sorted(np.concatenate(shares).tolist()) == list(range(examples))


@pytest.mark.parametrize("partition", PARTIAL, ids=repr)
def test_no_example_goes_to_two_clients_and_those_left_are_counted(partition: Partition) -> None:
    shares, notes = divided(partition, balanced(), clients=20)
    used = np.concatenate(shares)
    assert len(np.unique(used)) == len(used) < 1000
    assert any(f"{1000 - len(used):,} of 1,000 examples" in note for note in notes)


@pytest.mark.parametrize("partition", ALL, ids=repr)
@pytest.mark.parametrize("each", [[100] * 10, [300, 1, 50, 0, 0, 200, 9, 140, 200, 100]])
def test_no_client_is_empty(partition: Partition, each: list[int]) -> None:
    """Also where classes are unequal, and two are missing; the folds then divide 8 by 2."""
    y = stream(0, "labels").permutation(np.repeat(np.arange(10), each))
    if isinstance(partition, FiveFold) and 0 in each:
        partition = FiveFold(folds=2)
    assert min(len(share) for share in cut(partition, y, clients=20)) > 0


@pytest.mark.parametrize("partition", ALL, ids=repr)
def test_a_seed_decides_the_partition(partition: Partition) -> None:
    y = balanced()
    again = [cut(partition, y, 20, seed=1), cut(partition, y, 20, seed=1)]
    other = cut(partition, y, 20, seed=2)
    assert all(np.array_equal(a, b) for a, b in zip(*again, strict=True))
    assert sorted(map(sorted, again[0])) != sorted(map(sorted, other))


@pytest.mark.parametrize("name", [name for name in PARTITIONS if name != "natural"])
def test_a_seed_decides_the_digest(name: str) -> None:
    data = {"name": "synthetic", "samples": 900}
    partition = {"name": name} | ({"smallest": 20, "largest": 60} if name == "semantic" else {})

    def digest(seed: int) -> str:
        experiment = Experiment(data=data, partition=partition, clients=10, seed=seed)
        return read_federation(experiment, Path()).digest()

    assert digest(1) == digest(1) != digest(2)


@pytest.mark.parametrize("partition", EQUAL, ids=repr)
def test_sizes_are_equal_where_the_numbers_divide(partition: Partition) -> None:
    """1,000 examples over 20 clients: 50 each, whatever the 20, 40 or 100 shards."""
    assert {len(share) for share in cut(partition, balanced(), clients=20)} == {50}


def test_sizes_differ_by_one_shard_rest_at_most() -> None:
    """997 = 20 * 49 + 17; 997 = 40 * 24 + 37, so that two shards have 48 to 50."""
    y = balanced()[:997]
    for partition in (Iid(), DirichletClientwise(), DirichletHsu(), FiveFold()):
        assert Counter(len(share) for share in cut(partition, y, 20)) == {50: 17, 49: 3}
    assert {len(share) for share in cut(Pathological(), y, 20)} <= {48, 49, 50}


@pytest.mark.parametrize("partition", ALL, ids=repr)
def test_five_thousand_clients_end_with_a_word(partition: Partition) -> None:
    """60,000 labels are 12 each: enough for least = 10 or 11, and for five shards each. Whatever
    is unequal by nature, or leaves examples out, must say what it did."""
    shares, notes = divided(partition, balanced(each=6000), clients=5000)
    assert len(np.unique(np.concatenate(shares))) == sum(map(len, shares))
    assert min(map(len, shares)) > 0
    if partition in COMPLETE:
        assert (len(shares), sum(map(len, shares))) == (5000, 60_000)
    if partition in UNEQUAL + PARTIAL:
        assert notes
    assert all("\n" not in note for note in notes)


@pytest.mark.parametrize("partition", [DirichletClasswise(), Quantity(least=11)], ids=repr)
def test_fewer_examples_than_the_least_are_refused_in_one_line(partition: Partition) -> None:
    """6,000 clients with 11 examples would be 66,000."""
    with raises(IsthmusError):
        cut(partition, balanced(each=6000), clients=6000)


@pytest.mark.parametrize(
    "partition", [*EQUAL[:1], *EQUAL[7:], DirichletClasswise(short="drop")], ids=repr
)
def test_more_clients_than_examples_are_refused_in_one_line(partition: Partition) -> None:
    with raises(IsthmusError):
        cut(partition, balanced(each=2), clients=21)


def test_more_shards_than_examples_are_refused_in_one_line() -> None:
    with raises(IsthmusError):
        cut(Pathological(), balanced(each=2), clients=11)


def test_as_many_clients_as_examples_get_one_each() -> None:
    y = balanced(each=2)
    for partition in (Iid(), DirichletClientwise(), DirichletHsu(), FiveFold(), Quantity(least=1)):
        assert [len(share) for share in cut(partition, y, clients=20)] == [1] * 20
    assert [len(share) for share in cut(Pathological(), y, clients=10)] == [2] * 10


def test_iid_clients_have_every_class() -> None:
    """Of 100 examples a client misses one class of ten with probability 10 * 0.9^100 = 3e-4, ten
    clients some class with 3e-3; this seed is one of the others."""
    y = balanced()
    assert all(len(classes) == 10 for classes in classes_of(y, cut(Iid(), y, 10)))


@pytest.mark.parametrize("assignment", ["random", "strided", "neighbours"])
def test_two_shards_hold_two_classes_at_most_where_shards_fit_into_classes(assignment: str) -> None:
    """40 shards of 25 fit four times into each class of 100."""
    y = balanced()
    shares = cut(Pathological(2, assignment), y, clients=20)  # type: ignore[arg-type]
    assert max(len(classes) for classes in classes_of(y, shares)) == 2


@pytest.mark.parametrize("assignment", ["random", "strided", "neighbours"])
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
        assert extra[1] + 2 * extra[2] <= 5


def test_strided_assignment_knows_five_kinds_of_clients() -> None:
    """Client i gets shards i and i + 20 of 40; four shards are a class: classes i // 4 and
    i // 4 + 5."""
    y = balanced()
    pairs = classes_of(y, cut(Pathological(assignment="strided"), y, clients=20))
    assert pairs == [(i // 4, i // 4 + 5) for i in range(20)]


def test_neighbours_are_the_pairs_of_classes_that_follow_each_other() -> None:
    """The shards are in the order of classes 0, 1, ..., 9, 0, 1, ...: client i gets 2i and 2i + 1
    of them. With five shards it gets 5i to 5i + 4, that is the lower or the upper half."""
    y = balanced()
    pairs = classes_of(y, cut(Pathological(assignment="neighbours"), y, clients=20))
    assert pairs == [(2 * i % 10, 2 * i % 10 + 1) for i in range(20)]
    halves = classes_of(y, cut(Pathological(5, "neighbours"), y, clients=20))
    assert halves == [tuple(range(5 * i % 10, 5 * i % 10 + 5)) for i in range(20)]


def test_neighbours_of_unequal_classes_differ_as_long_as_there_are_others() -> None:
    """Six shards of 10: 0 0 0 1 1 2 become 0 1 2 0 1 0, and so the pairs 0 1, 2 0, 1 0."""
    y = np.repeat([0, 1, 2], [30, 20, 10])
    pairs = classes_of(y, cut(Pathological(assignment="neighbours"), y, clients=3))
    assert pairs == [(0, 1), (0, 2), (0, 1)]


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


def test_quantities_are_dirichlet_and_labels_are_not() -> None:
    """For q ~ Dir(alpha 1_N), E[q^2] = (1 + alpha) / (N (1 + N alpha)) = 3 / (5 * 11) for alpha = 2
    and N = 5; the mean over 400 seeds is within 5 standard errors of it but once in a million.
    A client of n examples has n / 2 +- sqrt(n) / 2 of one of two classes: 5 deviations likewise,
    and half an example for the rounding, for 2,000 clients once in a thousand."""
    y = stream(0, "labels").integers(2, size=10_000)
    squares = []
    for seed in range(400):
        shares = cut(Quantity(alpha=2.0, least=1), y, 5, seed)
        squares.append((len(shares[0]) / len(y)) ** 2)
        for share in shares:
            assert abs(y[share].sum() - y.mean() * len(share)) <= 2.5 * len(share) ** 0.5 + 0.5
    error = np.std(squares) / 20
    assert abs(np.mean(squares) - 3 / 55) < 5 * error


@pytest.fixture(scope="module")
def mnist() -> Labels:
    root = os.environ.get("ISTHMUS_DATA_ROOT")
    if root is None:
        pytest.skip("ISTHMUS_DATA_ROOT names no folder with MNIST")
    return Mnist().load(Path(root), seed=0).y


@pytest.mark.parametrize("partition", [kind() for kind in PARTITIONS.values()], ids=repr)
def test_the_real_labels_of_mnist(partition: Partition, mnist: Labels) -> None:
    """60,000 unequal classes, 5,421 to 6,742, into 100 clients of 600 where sizes are equal."""
    shares, notes = divided(partition, mnist, clients=100)
    used = np.concatenate(shares)
    assert len(np.unique(used)) == len(used)
    if partition in EQUAL:
        assert {len(share) for share in shares} == {600}
    if isinstance(partition, Pathological):
        assert max(map(len, classes_of(mnist, shares))) <= 4  # two shards, both straddling
    if isinstance(partition, FiveFold):
        primary = [
            np.isin(mnist[s], [k % 5 * 2, k % 5 * 2 + 1]).sum() for k, s in enumerate(shares)
        ]
        assert min(primary) >= 480
        assert max(primary) < 510
        assert "80.0%" in notes[0]
