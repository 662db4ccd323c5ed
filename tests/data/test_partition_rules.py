"""The Dirichlet partitions, 5-Fold and the semantic groups, against their rules."""

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from golden import check, raises
from isthmus.data.partitions.dirichlet import DirichletClasswise, DirichletClientwise, DirichletHsu
from isthmus.data.partitions.division import (
    Division,
    Partition,
    draw_with_least,
    fill_slots,
    level_out,
)
from isthmus.data.partitions.groups import FiveFold, Semantic
from isthmus.errors import IsthmusError
from isthmus.streams import stream

Labels = NDArray[np.int64]


def labels(each: list[int]) -> Labels:
    return stream(0, "labels").permutation(np.repeat(np.arange(len(each)), each))


def cut(partition: Partition, y: Labels, clients: int, seed: int = 1) -> Division:
    return partition.cut(y, clients, stream(seed, "partition"))


def table(y: Labels, division: Division) -> NDArray[np.int64]:
    """Counts the classes of every client: [N, C]."""
    classes = int(y.max()) + 1
    return np.stack([np.bincount(y[share], minlength=classes) for share in division.shares])


def test_a_late_slot_takes_what_it_wishes_for_next() -> None:
    """Of class 0 there is one example, of 1 two, of 2 one. The second slot finds no 0 and wishes
    for 1 else; so the fourth finds no 1, and wishes for 2 else."""
    wishes = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    wish = np.array([0, 0, 1, 1])
    filled = fill_slots(np.array([1, 2, 1]), np.array([0, 0, 1, 1]), wishes, wish, stream(0, "x"))
    assert (filled.classes.tolist(), filled.late, filled.astray) == ([0, 1, 1, 2], 2, 0)


def test_a_slot_whose_wishes_are_used_up_takes_what_is_left() -> None:
    """Three slots want class 0 alone, of which there is one; of 1 there are none, of 2 two."""
    wishes, wish = np.array([[1.0, 0.0, 0.0]]), np.zeros(3, int)
    filled = fill_slots(np.array([1, 0, 2]), None, wishes, wish, stream(0, "x"))
    assert (filled.classes.tolist(), filled.late, filled.astray) == ([0, 2, 2], 2, 2)


def one_by_one(
    phi: NDArray[np.float64], room: Labels, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The releases' rule as it is written: a random client that is not full, a class by phi_k; a
    class that is used up has its entry set to 0, and the rest is divided by its sum."""
    room, counts = room.copy(), np.zeros(phi.shape, np.int64)
    while room.sum():
        short = np.flatnonzero(counts.sum(axis=1) < size)
        k = short[rng.integers(len(short))]
        p = np.cumsum(phi[k] * (room > 0))
        c = np.searchsorted(p, p[-1] * rng.random(), side="right")
        counts[k, c] += 1
        room[c] -= 1
    return counts


@pytest.mark.parametrize("partition", [DirichletClientwise(0.3), DirichletHsu(2.0)], ids=repr)
def test_drawing_all_at_once_is_drawing_one_by_one(partition: Partition) -> None:
    """Two statistics of the counts, over 250 seeds each way: how concentrated a client's classes
    are (mean of sum_c p_c^2), and the same for the classes that are used up first. Two means
    differ by more than 4.5 standard errors once in 150,000 times."""
    each = np.array([40, 30, 20, 20, 6, 4])
    y = labels(each.tolist())
    concentration = np.full(6, 0.3) if isinstance(partition, DirichletClientwise) else each / 60
    ours, theirs = [], []
    for seed in range(250):
        rng = stream(seed, "one by one")
        phi = rng.dirichlet(concentration, 10)
        ours.append(table(y, cut(partition, y, 10, seed)))
        theirs.append(one_by_one(phi, each, 12, rng))
    for few in (slice(0, 6), slice(4, 6)):
        a, b = (
            np.square(np.stack(counts)[:, :, few] / 12).sum(axis=2).mean(axis=1)
            for counts in (ours, theirs)
        )
        assert abs(a.mean() - b.mean()) < 4.5 * np.sqrt((a.var() + b.var()) / 250)


def test_hsu_is_centred_on_the_class_shares_and_clientwise_on_equal_ones() -> None:
    """With concentrations of 1e9 nobody differs from the centre. Hsu: 500 +- 15.8 of class 0 for
    each of ten clients of 1,000; five deviations are exceeded once in 100,000 times. Client-wise,
    the first of 10,000 draws are of three equal classes, until the rare ones are used up: the
    first class has to make up for them, which it says."""
    y = labels([5000, 3000, 2000])
    hsu = cut(DirichletHsu(alpha=1e9), y, 10)
    assert np.abs(table(y, hsu)[:, 0] - 500).max() < 80
    clientwise = cut(DirichletClientwise(beta=1e9), y, 10)
    redraw = int(clientwise.notes[0].split(" of ")[0].replace(",", ""))
    # 3,333 wanted class 2 and 2,000 got it; 3,333 + 667 wanted class 1, of which there are 3,000.
    assert abs(redraw - (1333 + 333)) < 700
    assert not any("wants none" in note for note in hsu.notes + clientwise.notes)


def test_unlikely_classes_are_taken_where_nothing_else_is_left() -> None:
    """With beta = 1e-5 most clients want one class only; where it is used up they take others,
    and the note says how many did."""
    y = labels([100] * 10)
    division = cut(DirichletClientwise(beta=1e-5), y, 20)
    check(division.notes[0])
    assert table(y, division).sum(axis=0).tolist() == [100] * 10


@pytest.mark.parametrize("size", [1e-300, 1e-8, 1e8, 1e308])
def test_no_concentration_is_too_small_or_too_large(size: float) -> None:
    y = labels([60] * 10)
    rules = (DirichletClasswise(size), DirichletClientwise(size), DirichletHsu(size))
    for partition in cast(tuple[Partition, ...], rules):
        assert table(y, cut(partition, y, 20)).sum() == 600


def test_classwise_divides_a_class_by_a_dirichlet_draw() -> None:
    """For q ~ Dir(alpha 1_N), E[q^2] = (1 + alpha) / (N (1 + N alpha)) = 3 / (5 * 11) for alpha = 2
    and N = 5. The mean over 400 seeds is within 5 standard errors but once in a million times."""
    y = np.zeros(20_000, np.int64)
    partition = DirichletClasswise(alpha=2.0, least=1)
    first = [len(cut(partition, y, 5, seed).shares[0]) / len(y) for seed in range(400)]
    squares = np.square(first)
    assert abs(squares.mean() - 3 / 55) < 5 * squares.std() / 20


@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_classwise_gives_nothing_more_to_who_has_the_mean_size(alpha: float) -> None:
    """Whoever has 1,000 / 10 = 100 examples of the classes before c gets none of c."""
    y = labels([100] * 10)
    for seed in range(20):
        counts = table(y, cut(DirichletClasswise(alpha, least=1, short="drop"), y, 10, seed))
        before = np.cumsum(counts, axis=1) - counts
        assert not counts[before >= 100].any()


def test_classwise_drops_by_name_and_can_do_so_again() -> None:
    """What a record keeps, the number of clients before and after, makes the same clients."""
    y = labels([600] * 10)
    shares, (note,) = cut(DirichletClasswise(alpha=0.05, short="drop"), y, 50)
    assert 1 < len(shares) < 50
    assert min(map(len, shares)) >= 11
    check(note)
    again = cut(DirichletClasswise(alpha=0.05, short="drop", drawn=50), y, len(shares))
    assert all(np.array_equal(a, b) for a, b in zip(shares, again.shares, strict=True))
    assert again.notes == (note,)


def test_classwise_with_nobody_to_keep_is_refused_in_one_line() -> None:
    """200 examples, 100 clients: about 2 each."""
    with raises(IsthmusError):
        cut(DirichletClasswise(alpha=100.0, short="drop"), labels([20] * 10), 100)


def test_sizes_are_drawn_again_before_anything_is_moved() -> None:
    draws = iter([[[1], [9]], [[2], [8]], [[5], [5]]])
    counts, notes = draw_with_least(lambda: np.array(next(draws)), least=4)
    assert counts.tolist() == [[5], [5]]
    check(*notes)


def test_what_is_moved_comes_from_the_largest_clients() -> None:
    """The fourth needs 3, the fifth 1. From sizes 9, 7, 4, 0, 2 four come off the largest when
    they are brought down to 6: 3 and 1. The first gives of its most frequent class, class 1."""
    counts = np.array([[2, 6, 1], [0, 0, 7], [4, 0, 0], [0, 0, 0], [2, 0, 0]])
    moved = level_out(counts, least=3)
    assert moved.tolist() == [[2, 3, 1], [0, 0, 6], [4, 0, 0], [0, 3, 0], [2, 0, 1]]


def test_moving_keeps_every_class_and_reaches_the_least() -> None:
    for seed in range(50):
        rng = stream(seed, "level_out")
        counts = rng.multinomial(200, rng.dirichlet(np.full(60, 0.1))).reshape(12, 5)
        moved = level_out(counts, least=16)  # 12 * 16 = 192 of 200
        assert moved.min() >= 0
        assert moved.sum(axis=1).min() >= 16
        assert moved.sum(axis=0).tolist() == counts.sum(axis=0).tolist()


def five_fold(each: int, classes: int, clients: int, **options: Any) -> NDArray[np.int64]:
    """Counts of balanced data, where nothing is relaxed."""
    y = labels([each] * classes)
    division = cut(FiveFold(**options), y, clients)
    assert division.notes == ()
    assert sum(map(len, division.shares)) == len(y)
    return table(y, division)


def test_five_fold_has_400_of_500_from_primary_classes() -> None:
    """50,000 balanced labels, 100 clients: 0.8 * 500 = 400, 200 of each of two classes; the other
    100 over 8 classes are 12 or 13 of each. A class is asked for by its 20 clients 200 times and
    by the other 80 12.5 times on average: 5,000, which is what there is."""
    counts = five_fold(5000, 10, 100)
    for k, row in enumerate(counts):
        primary = [2 * (k % 5), 2 * (k % 5) + 1]
        assert row[primary].tolist() == [200, 200]
        assert set(np.delete(row, primary).tolist()) == {12, 13}


@pytest.mark.parametrize(("share", "expected"), [(0.8, 420), (0.7, 380)])
def test_five_fold_as_released_has_more_from_primary_classes(share: float, expected: int) -> None:
    """Flower: 0.8 + 0.2 * 2 / 10 = 84% of 500. FLbench: 0.7 + 0.3 * 2 / 10 = 76%."""
    counts = five_fold(5000, 10, 100, primary_share=share, rest="all")
    for k, row in enumerate(counts):
        assert row[[2 * (k % 5), 2 * (k % 5) + 1]].sum() == expected


def test_five_fold_takes_other_numbers_of_classes_and_folds() -> None:
    """100 classes of 500: 20 are primary; 400 / 20 = 20 of each. Ten folds of ten classes: one is
    primary, 0.5 * 500 = 250. Nothing but primary classes: 0 of the others."""
    hundred = five_fold(500, 100, 100)
    assert set(hundred[3, 60:80].tolist()) == {20}
    ten = five_fold(5000, 10, 100, primary_share=0.5, folds=10)
    assert [ten[k, k % 10] for k in range(100)] == [250] * 100
    alone = five_fold(5000, 10, 100, primary_share=1.0)
    assert (alone > 0).sum(axis=1).tolist() == [2] * 100


def test_five_fold_says_what_it_relaxes() -> None:
    """Class 0 has 100 examples, and its 4 clients want 4 * 40 of it: 60 or more come from class 1,
    their other primary class, of which there are 300; so that all keep their 80 of 100."""
    y = labels([100, 300, *[200] * 8])
    division = cut(FiveFold(), y, 20)
    counts = table(y, division)
    assert counts.sum(axis=1).tolist() == [100] * 20
    assert all(counts[k, :2].sum() >= 80 for k in range(0, 20, 5))
    check(division.notes[0])
    assert "80.0% to " in division.notes[0]


def test_five_fold_wants_classes_that_its_folds_divide() -> None:
    with raises(IsthmusError):
        cut(FiveFold(), labels([100] * 7), 10)


EMNIST = [38_000] * 10 + [6_000] * 26 + [6_228] * 26  # 697,928: about as many as there are


def test_emnist_groups_hold_digits_capital_and_small_letters() -> None:
    """697,932 images in clients of 449.5 on average, less what is left over, 5 times some 300:
    about 1,549, with a deviation of 202 / 449.5^1.5 * sqrt(697,932) = 18. The paper had 1,543."""
    y = labels(EMNIST)
    division = cut(Semantic(kind="emnist"), y, 100)
    sizes = [len(share) for share in division.shares]
    assert min(sizes) >= 100
    assert max(sizes) <= 799
    assert abs(len(sizes) - 1549) < 5 * 18
    assert abs(np.mean(sizes) - 449.5) < 5 * 202 / np.sqrt(1549)
    kinds = {tuple(np.flatnonzero(row)) for row in table(y, division)}
    groups = {max((kind for kind in kinds if kind[0] in k), key=len) for k in kinds}
    assert sorted(np.concatenate(list(groups)).tolist()) == list(range(62))
    blocks = [np.histogram(group, [0, 10, 36, 62])[0].tolist() for group in groups]
    assert sorted(blocks) == [[2, 5, 5]] * 4 + [[2, 6, 6]]
    check(division.notes[0])
    assert "left over" in division.notes[1]


def test_tinyimagenet_has_ten_groups_of_twenty_classes() -> None:
    """100,000 images less 10 times some 150, over 249.5: about 395, with a deviation of
    86.6 / 249.5^1.5 * sqrt(100,000) = 7. The paper had 390."""
    y = labels([500] * 200)
    division = cut(Semantic(kind="tinyimagenet"), y, 390)
    sizes = [len(share) for share in division.shares]
    assert min(sizes) >= 100
    assert max(sizes) <= 399
    assert abs(len(sizes) - 395) < 35
    counts = table(y, division) > 0
    together = counts.T.astype(int) @ counts.astype(int) > 0  # classes that share a client
    assert together.sum(axis=1).tolist() == [20] * 200


def test_groups_of_any_classes_are_as_even_as_can_be() -> None:
    """Seven classes in three groups: 2, 2 and 3."""
    y = labels([500] * 7)
    division = cut(Semantic(groups=3, smallest=50, largest=60), y, 20)
    kinds = {tuple(np.flatnonzero(row)) for row in table(y, division)}
    assert sorted(map(len, kinds)) == [2, 2, 3]


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "emnist"},
        {"groups": 11},
        {"smallest": 900},
        {"smallest": 300},
    ],
)
def test_groups_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with raises(IsthmusError):
        cut(Semantic(**options), labels([100] * 10), 10)
