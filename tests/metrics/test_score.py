"""Scores: hand-worked, and sums that may be split, padded and computed in blocks."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot, softmax

from isthmus import tree
from isthmus.metrics import metric
from isthmus.metrics.score import Tally, figures, pool, tally

# Sums of float64 in another grouping differ by their last digits; hundreds of terms, not more.
REGROUPED = 1e-13


def some(n: int, classes: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator)
    return logits, torch.randint(classes, (n,), generator=generator)


def with_confidence(confidence: float, right: bool, classes: int = 2) -> tuple[Tensor, int]:
    """Makes logits whose largest probability, that of class 0, is `confidence`."""
    p = torch.full((classes,), (1 - confidence) / (classes - 1), dtype=torch.float64)
    p[0] = confidence
    return p.log(), 0 if right else 1


def tallied(examples: list[tuple[Tensor, int]]) -> Tally:
    logits, y = zip(*examples, strict=True)
    return tally(torch.stack(logits), torch.tensor(y))


def close(found: Tally, expected: Tally) -> None:
    for one, other in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=REGROUPED, atol=0)


def test_a_hand_worked_example() -> None:
    """Four examples with these probabilities and labels:

        .50 .10 .10 .10 .10 .10   0: right,               confidence .50, bin (7/15, 8/15]
        .42 .18 .10 .10 .10 .10   1: wrong, second,       confidence .42, bin (6/15, 7/15]
        .42 .30 .10 .08 .06 .04   5: wrong, sixth of six, confidence .42, the same bin
        .02 .90 .02 .02 .02 .02   1: right,               confidence .90, bin (13/15, 14/15]

    top-1 2/4; top-5 3/4; loss -(ln .5 + ln .18 + ln .04 + ln .9) / 4 = -ln(.00324) / 4 = 1.4330455.
    Gaps: |1 - .5| = .5 of one, |0 - .42| = .42 of two, |1 - .9| = .1 of one:
    ECE .25 * .5 + .5 * .42 + .25 * .1 = .36, MCE .5. float64 leaves 1e-12 to spare.
    Squares: .25 + 5 * .01 = .3; .1764 + .6724 + 4 * .01 = .8888;
    .1764 + .09 + .01 + .0064 + .0036 + .9216 = 1.208; .01 + 5 * .0004 = .012; Brier 2.4088 / 4.
    """
    p = torch.tensor(
        [
            [0.50, 0.10, 0.10, 0.10, 0.10, 0.10],
            [0.42, 0.18, 0.10, 0.10, 0.10, 0.10],
            [0.42, 0.30, 0.10, 0.08, 0.06, 0.04],
            [0.02, 0.90, 0.02, 0.02, 0.02, 0.02],
        ],
        dtype=torch.float64,
    )
    sums = tally(p.log(), torch.tensor([0, 1, 5, 1]))
    found = figures(sums)
    assert sums.bin_n.tolist() == [0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 1, 0]
    assert (found.n, found.top1, found.top5) == (4, 0.5, 0.75)
    assert found.loss == pytest.approx(1.4330455, abs=1e-7)
    assert found.loss == pytest.approx(-math.log(0.00324) / 4, rel=1e-12)
    assert found.ece == pytest.approx(0.36, rel=1e-12)
    assert found.mce == pytest.approx(0.5, rel=1e-12)
    assert found.brier == pytest.approx(0.6022, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_calibration_and_brier_are_those_of_torchmetrics(seed: int) -> None:
    """Its bins are closed below, ours above: random confidences lie on no edge. It sums in float32,
    which leaves some 1e-7. Brier is its mean squared error of each class's probability, summed over
    classes."""
    # Here, since it takes seconds: every process that runs some of the tests imports all files.
    from torchmetrics.functional import mean_squared_error
    from torchmetrics.functional.classification import multiclass_calibration_error

    logits, y = some(300, seed=seed)
    found = figures(tally(logits, y))
    for norm, value in (("l1", found.ece), ("max", found.mce)):
        other = multiclass_calibration_error(logits, y, num_classes=7, n_bins=15, norm=norm)
        assert value == pytest.approx(float(other), rel=1e-6)
    p, label = softmax(logits, dim=1), one_hot(y, 7).float()
    other = mean_squared_error(p, label, num_outputs=7).sum()
    assert found.brier == pytest.approx(float(other), rel=1e-6)


def test_the_least_and_the_largest_brier_score() -> None:
    """Sure and right: 0. Sure and wrong: (1 - 0)^2 + (0 - 1)^2 = 2. Without an opinion on four
    classes: 3 * .25^2 + .75^2 = .75."""
    sure = torch.tensor([[2000.0, 0.0]])
    assert figures(tally(sure, torch.tensor([0]))).brier == 0
    assert figures(tally(sure, torch.tensor([1]))).brier == 2
    assert figures(tally(torch.zeros(1, 4), torch.tensor([2]))).brier == pytest.approx(0.75)


@pytest.mark.parametrize(("classes", "bin"), [(15, 0), (5, 2), (3, 4), (1, 14)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bin_is_closed_above(classes: int, bin: int, dtype: torch.dtype) -> None:
    """Equal logits give the confidence 1/C, which is the upper border of bin 15/C (from 1)."""
    sums = tally(torch.zeros(1, classes, dtype=dtype), torch.tensor([0]))
    assert sums.bin_n.nonzero().ravel().tolist() == [bin]


@pytest.mark.parametrize(("classes", "bin"), [(15, 0), (5, 2), (3, 4)])
def test_a_bin_is_open_below(classes: int, bin: int) -> None:
    """A confidence that is 1e-9 above 1/C belongs to the next bin; float64 resolves 1e-16."""
    logits, y = with_confidence(1 / classes + 1e-9, True, classes)
    assert tallied([(logits, y)]).bin_n.nonzero().ravel().tolist() == [bin + 1]


def test_a_confidence_of_one_is_in_the_last_bin() -> None:
    sums = tally(torch.tensor([[200.0, 0.0]]), torch.tensor([0]))
    assert sums.bin_confidence.tolist() == [0.0] * 14 + [1.0]


def test_of_equal_logits_the_first_counts() -> None:
    """As argmax does: of (1, 1, 0) the first; of six equal ones the sixth is not among five."""
    tied = torch.tensor([[1.0, 1.0, 0.0]])
    assert [tally(tied, torch.tensor([y])).top1.item() for y in range(3)] == [1, 0, 0]
    level = torch.zeros(1, 6)
    assert [tally(level, torch.tensor([y])).top5.item() for y in range(6)] == [1, 1, 1, 1, 1, 0]
    logits = torch.randint(4, (500, 6), generator=torch.Generator().manual_seed(1)).float()
    y = torch.arange(500) % 6
    assert tally(logits, y).top1 == (logits.argmax(1) == y).sum()


def test_with_five_classes_or_fewer_the_true_one_is_among_five() -> None:
    logits, y = some(50, classes=5)
    assert tally(logits, y).top5 == 50


def test_what_is_no_number_is_never_right() -> None:
    """A network that overflowed knows nothing, whatever the label."""
    nan = math.nan
    for logits in ([nan] * 6, [nan, 1, 2, 3, 4, 5], [0, nan, nan, nan, nan, nan]):
        sums = tally(torch.tensor([logits]), torch.tensor([0]))
        assert (sums.top1, sums.top5) == (0, 0)


def test_all_classes_count_alike_in_balanced_accuracy() -> None:
    """Of 4 examples of class 0 all are right, of 2 of class 1 one is; class 2 does not occur."""
    logits = torch.eye(3)[[0, 0, 0, 0, 1, 0]]
    found = figures(tally(logits, torch.tensor([0, 0, 0, 0, 1, 1])))
    assert found.top1 == pytest.approx(5 / 6)
    assert found.balanced == pytest.approx((1 + 1 / 2) / 2)


def test_padding_changes_nothing() -> None:
    """Rows of weight 0 hold any numbers; only the grouping of the sums may change."""
    logits, y = some(40)
    garbage = torch.cat([logits, 1e4 * some(24, seed=1)[0]])
    labels = torch.cat([y, torch.zeros(24, dtype=torch.int64)])
    weight = torch.cat([torch.ones(40), torch.zeros(24)])
    close(tally(garbage, labels, weight), tally(logits, y))


def test_the_tallies_of_two_parts_add_to_that_of_the_whole() -> None:
    logits, y = some(90)
    first, second = (tally(logits[part], y[part], among=y) for part in (slice(37), slice(37, None)))
    close(tree.map(torch.add, first, second), tally(logits, y))


def test_a_block_of_clients_is_tallied_as_one_after_another() -> None:
    logits, y = some(5 * 20)
    logits, y = logits.reshape(5, 20, 7), y.reshape(5, 20)
    weight = (torch.arange(20) < torch.tensor([20, 1, 7, 19, 12])[:, None]).float()
    block = torch.func.vmap(tally)(logits, y, weight)
    rows = [tally(*row) for row in zip(logits, y, weight, strict=True)]
    close(block, tree.stack(rows))
    found = figures(block)
    assert found.n.tolist() == [20, 1, 7, 19, 12]
    assert found.ece.shape == (5,)
    for k, row in enumerate(rows):
        one = [figure[k] for figure in found]
        np.testing.assert_allclose(one, figures(row), rtol=REGROUPED, atol=1e-15)


def test_a_calibrated_model_has_no_error() -> None:
    """Of ten with confidence .7 seven are right, of five with confidence .4 two; three classes, so
    that .4 can be the largest probability."""
    examples = [with_confidence(0.7, k < 7, classes=3) for k in range(10)]
    examples += [with_confidence(0.4, k < 2, classes=3) for k in range(5)]
    found = figures(tallied(examples))
    assert found.ece == pytest.approx(0, abs=1e-12)
    assert found.mce == pytest.approx(0, abs=1e-12)


def test_a_sure_model_that_is_always_wrong_has_all_the_error() -> None:
    found = figures(tally(torch.tensor([[200.0, 0.0]] * 3), torch.tensor([1, 1, 1])))
    assert (found.top1, found.ece, found.mce) == (0, 1, 1)


def test_a_model_with_one_class_is_sure_and_right() -> None:
    found = figures(tally(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64)))
    assert (found.top1, found.loss, found.ece, found.mce) == (1, 0, 0, 0)


def test_calibration_is_that_of_the_whole_split() -> None:
    """Two examples of confidence .9, one right: together |.5 - .9| = .4; one at a time the mean of
    |1 - .9| and |0 - .9| would be .5."""
    right, wrong = with_confidence(0.9, True), with_confidence(0.9, False)
    assert figures(tallied([right, wrong])).ece == pytest.approx(0.4, rel=1e-12)
    alone = [figures(tallied([one])).ece for one in (right, wrong)]
    assert np.mean(alone) == pytest.approx(0.5, rel=1e-12)


def test_calibration_per_batch_is_the_mean_over_batches() -> None:
    """Confidence .9 throughout; right, wrong | wrong: |.5 - .9| = .4 and |0 - .9| = .9, of which
    the mean is .65, for ECE and MCE alike; over all three it is |1/3 - .9| = .5666667. The short
    last batch counts like the others; top-1 and Brier are over all: 1/3 and (.02 + 1.62 * 2) / 3.
    """
    examples = [with_confidence(0.9, right) for right in (True, False, False)]
    logits, y = torch.stack([row for row, _ in examples]), torch.tensor([y for _, y in examples])
    found, whole = figures(tally(logits, y, batch=2)), figures(tally(logits, y))
    assert (found.ece, found.mce) == (pytest.approx(0.65), pytest.approx(0.65))
    assert whole.ece == pytest.approx(0.5666667, abs=1e-7)
    assert (found.top1, found.brier) == (whole.top1, whole.brier)
    assert found.brier == pytest.approx((0.02 + 1.62 * 2) / 3)


@pytest.mark.parametrize("size", [1, 7, 20, 64])
def test_calibration_per_batch_is_that_of_each_batch_by_itself(size: int) -> None:
    """60 examples: with 7 the last of nine batches has four; with 64 there is only one."""
    logits, y = some(60)
    parts = zip(logits.split(size), y.split(size), strict=True)
    alone = [figures(tally(*part)) for part in parts]
    found = figures(tally(logits, y, batch=size))
    assert found.ece == pytest.approx(np.mean([one.ece for one in alone]), rel=REGROUPED)
    assert found.mce == pytest.approx(np.mean([one.mce for one in alone]), rel=REGROUPED)


def test_padding_changes_nothing_per_batch() -> None:
    """40 examples in batches of seven are six, the last of five; padding fills it up, and more."""
    logits, y = some(40)
    garbage = torch.cat([logits, 1e4 * some(24, seed=1)[0]])
    labels = torch.cat([y, torch.zeros(24, dtype=torch.int64)])
    weight = torch.cat([torch.ones(40), torch.zeros(24)])
    found = tally(garbage, labels, weight, batch=7)
    close(found, tally(logits, y, batch=7))
    assert found.batches
    assert found.batches.n == 6


def test_whole_batches_add_to_those_of_the_whole() -> None:
    logits, y = some(90)
    halves = (slice(40), slice(40, None))
    first, second = (tally(logits[part], y[part], batch=8, among=y) for part in halves)
    close(tree.map(torch.add, first, second), tally(logits, y, batch=8))


def test_what_is_pooled_is_calibrated_over_all_examples() -> None:
    """Per batch or not: every example is counted once, in its bin."""
    logits, y = some(90)
    found = pool(tally(logits, y, batch=8))
    assert found == pool(tally(logits, y))._replace(bins=found.bins)
    assert found.bins.n.sum() == 90
    assert found.bins.top1.sum() == found.figures.top1 * 90
    assert found.figures.ece == metric.ece(*found.bins)


def test_opposite_errors_cancel_inside_a_bin_and_not_across() -> None:
    """.72 right and .68 wrong share the bin (10/15, 11/15]: |.5 - .7| = .2 of two.
    .75 right and .65 wrong do not: .5 * |1 - .75| + .5 * |0 - .65| = .45, the largest .65."""
    together = figures(tallied([with_confidence(0.72, True), with_confidence(0.68, False)]))
    apart = figures(tallied([with_confidence(0.75, True), with_confidence(0.65, False)]))
    assert (together.ece, together.mce) == (pytest.approx(0.2), pytest.approx(0.2))
    assert (apart.ece, apart.mce) == (pytest.approx(0.45), pytest.approx(0.65))


def test_without_examples_the_largest_gap_is_one() -> None:
    empty = np.zeros((2, metric.BINS))
    assert metric.mce(empty, empty, empty).tolist() == [1, 1]
    assert metric.ece(empty, empty, empty).tolist() == [0, 0]


def test_an_empty_bin_has_no_gap() -> None:
    """One example, wrong, of confidence .6 in bin 8: its gap is .6 and the other 14 are 0."""
    n, hits, sums = np.zeros((3, metric.BINS))
    n[8], sums[8] = 1, 0.6
    expected = [0.6 if bin == 8 else 0 for bin in range(15)]
    assert metric.gaps(n, hits, sums).tolist() == expected
    assert metric.mce(n, hits, sums) == 0.6
