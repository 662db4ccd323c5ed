"""Intervals, tests and ranks: worked by hand, against scipy, and under a null."""

from itertools import product
from math import nan, sqrt

import numpy as np
import pytest
from scipy import stats

from isthmus.report import statistics
from isthmus.report.statistics import Interval, bootstrap

EXAMPLES = 20  # in the test part of a simulated client


def alike(rng: np.random.Generator, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Two methods that are one: each client's accuracies are drawn twice from one distribution."""
    skill = rng.beta(8, 3, size=shape)
    first, second = rng.binomial(EXAMPLES, skill, (2, *shape)) / EXAMPLES
    return first, second


def within(rate: float, share: float, trials: int, deviations: float = 4) -> bool:
    """A share of independent trials has the deviation sqrt(p (1 - p) / trials); a fixed seed fails
    at four of them once in 16,000 choices of the seed."""
    return abs(rate - share) < deviations * sqrt(share * (1 - share) / trials)


def test_clients_are_drawn_within_seeds() -> None:
    """Of (0, 0, 1, 1) a resample of one seed is Binomial(4, 1/2) / 4, that of two seeds with the
    same values Binomial(8, 1/2) / 8, whichever seeds are drawn. P(0 of 4) = 1/16 > 0.025: bounds 0
    and 1. P(0 of 8) = 1/256 < 0.025 < P(at most 1 of 8) = 9/256: bounds 1/8 and 7/8. If clients
    are the same in both seeds, they are drawn once: bounds 0 and 1 again."""
    clients = [0.0, 0.0, 1.0, 1.0]
    assert bootstrap([clients]) == Interval(0.5, 0.0, 1.0)
    assert bootstrap([clients, clients]) == Interval(0.5, 0.125, 0.875)
    assert bootstrap([clients, clients], crossed=True) == Interval(0.5, 0.0, 1.0)


def test_seeds_are_drawn_too() -> None:
    """Clients that agree leave the seeds: a resample's mean is that of three draws of (0, 0.3,
    0.9). P(0, 0, 0) = 1/27 > 0.025, so that the bounds are the lowest and the highest seed."""
    seeds = [[0.0] * 50, [0.3] * 50, [0.9] * 50]
    for crossed in (False, True):
        low, high = bootstrap(seeds, crossed)[1:]
        assert (low, high) == (pytest.approx(0.0), pytest.approx(0.9))


def test_the_interval_is_that_of_scipy_and_always_the_same() -> None:
    """Both quantiles vary by sqrt(0.025 * 0.975 / 5000) = 0.0022 in rank, which is 0.0022 / 0.058 =
    0.038 deviations of the mean where the normal density is 0.058; four times both is 0.22."""
    values = np.random.default_rng(3).beta(8, 3, size=60)
    ours = bootstrap([values])
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(4)
    ).confidence_interval
    deviation = values.std() / sqrt(len(values))
    assert ours[1:] == pytest.approx([theirs.low, theirs.high], abs=0.22 * deviation)
    assert bootstrap([values]) == ours
    assert bootstrap([np.append(values, nan)]) == ours


def test_many_clients_are_resampled_in_parts() -> None:
    """5000 resamples of 10,000 clients do not fit into one part. The bounds of a mean of so many
    are those of the normal distribution, to the error of the quantiles as above."""
    values = np.random.default_rng(5).binomial(EXAMPLES, 0.7, size=10_000) / EXAMPLES
    mean, low, high = bootstrap([values])
    error = values.std() / 100
    assert (low - mean) / error == pytest.approx(-1.96, abs=0.16)
    assert (high - mean) / error == pytest.approx(1.96, abs=0.16)


def test_one_value_or_none_has_no_bounds() -> None:
    for values, mean in (([[0.25, nan]], 0.25), ([[nan]], nan), ([], nan)):
        found = bootstrap(values)
        assert found == pytest.approx((mean, nan, nan), nan_ok=True)
        assert found.holds(0.0)


@pytest.mark.parametrize("seed", range(3))
def test_the_signed_rank_test_is_that_of_all_signs(seed: int) -> None:
    """Of 2^8 signs, the share whose sum of positive ranks is as far from its mean as the one found;
    the ranks have ties, and two differences are zero."""
    d = np.random.default_rng(seed).integers(-4, 6, size=10) / EXAMPLES
    d[:2] = 0
    d[d == 0] = 0
    kept = d[d != 0]
    ranks = stats.rankdata(np.abs(kept))
    sums = np.array([np.dot(signs, ranks) for signs in product((0, 1), repeat=len(kept))])
    far = np.abs(sums - ranks.sum() / 2) >= abs(ranks[kept > 0].sum() - ranks.sum() / 2) - 1e-9
    assert statistics.wilcoxon(d) == pytest.approx(far.mean())


@pytest.mark.parametrize("count", [30, 400])
def test_without_ties_the_signed_rank_test_is_that_of_scipy(count: int) -> None:
    """Exact in both up to 50 differences; beyond, the same normal approximation."""
    d = np.random.default_rng(count).normal(0.2, 1, size=count)
    method = "exact" if count <= 50 else "asymptotic"
    assert statistics.wilcoxon(d) == pytest.approx(stats.wilcoxon(d, method=method).pvalue)


def test_the_critical_differences_are_the_published_ones() -> None:
    """Demšar (2006), Table 5a: q at 0.05 for 2 to 10 classifiers; CD = q sqrt(k (k + 1) / 6 n)."""
    table = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)
    for k, q in enumerate(table, start=2):
        found = statistics.critical_difference(k, 1) / sqrt(k * (k + 1) / 6)
        assert found == pytest.approx(q, abs=1e-3)  # the table's last digit


def test_friedman_is_the_formula_without_ties() -> None:
    """Ranks (1, 2, 3), (1, 2, 3), (2, 1, 3): averages 4/3, 5/3, 3, squares 16/9 + 25/9 + 81/9 =
    122/9; chi^2 = 12 * 3 / 12 * (122/9 - 12) = 14/3; two degrees of freedom: exp(-7/3)."""
    scores = [[0.9, 0.8, 0.7], [0.6, 0.5, 0.4], [0.8, 0.9, 0.1]]
    assert statistics.average_ranks(scores) == pytest.approx([4 / 3, 5 / 3, 3])
    assert statistics.friedman(scores) == pytest.approx(np.exp(-7 / 3))
    assert statistics.friedman([[0.5] * 3] * 4) == 1.0


@pytest.mark.parametrize("clients", [20, 100])
def test_two_methods_that_are_one_differ_at_the_nominal_rate(clients: int) -> None:
    """Signs of the differences are fair coins, so that p < 0.05 in a twentieth of all cases, to
    four deviations of that share. The sum of ranks has steps, so that the share is a little less:
    of 20 untied differences the largest p below 0.05 is 0.0484, half a deviation of 3000 trials."""
    rng, trials = np.random.default_rng(11), 3000
    ps = [
        statistics.wilcoxon(statistics.pair(*alike(rng, clients), np.full(clients, EXAMPLES)))
        for _ in range(trials)
    ]
    assert within(float(np.mean(np.array(ps) < 0.05)), 0.05, trials)


def test_holm_keeps_the_rate_over_several_rivals() -> None:
    """Four rivals that are the reference: some p < 0.05 in more than a tenth of the cases before,
    and in at most a twentieth, to four deviations, after the correction."""
    rng, trials, found = np.random.default_rng(12), 1000, []
    for _ in range(trials):
        skill = rng.beta(8, 3, size=30)
        reference, *rivals = rng.binomial(EXAMPLES, skill, (5, 30)) / EXAMPLES
        found.append([statistics.wilcoxon(rival - reference) for rival in rivals])
    before = np.mean(np.min(found, axis=1) < 0.05)
    after = np.mean([statistics.holm(ps).min() < 0.05 for ps in found])
    assert before > 0.1
    assert after < 0.05 + 4 * sqrt(0.05 * 0.95 / trials)


def test_the_interval_of_no_difference_holds_zero_at_the_nominal_rate() -> None:
    """Of one seed the resamples' variance is (N - 1) / N of the mean's: with 100 clients the bounds
    are at 1.95 deviations and hold it in 94.8 % of all cases, within the four deviations."""
    rng, trials = np.random.default_rng(13), 1000
    held = [
        bootstrap([np.subtract(*alike(rng, 100))], resamples=600).holds(0) for _ in range(trials)
    ]
    assert within(float(np.mean(held)), 0.95, trials)


@pytest.mark.parametrize(("seeds", "least"), [(3, 0.90), (5, 0.93)])
def test_the_interval_over_seeds_allows_for_luck_that_clients_share(
    seeds: int, least: float
) -> None:
    """Each seed moves all its clients by a draw whose variance is that of a mean over clients, v.
    The mean of S seeds has variance 2 v / S, the resamples on average ((S - 1) / S * 2 v + v) / S:
    7/6 of it with 3 seeds, 1.3 with 5. But a variance from so few seeds is itself uncertain, which
    costs some per cent. One that resamples clients alone has v / S and would hold zero in
    P(|z| < 1.96 / sqrt 2) = 83 %."""
    rng, trials, clients = np.random.default_rng(14), 500, 20
    held, alone = [], []
    for _ in range(trials):
        values = rng.normal(0, 1, (seeds, clients)) + rng.normal(0, 1 / sqrt(clients), (seeds, 1))
        held.append(bootstrap(values.round(1), resamples=300).holds(0))
        alone.append(bootstrap([values.round(1).ravel()], resamples=300).holds(0))
    tolerance = 4 * sqrt(least * (1 - least) / trials)
    assert np.mean(held) > least - tolerance
    assert within(float(np.mean(alone)), 0.83, trials)


def test_a_real_gain_is_found() -> None:
    """A test that could not fail would call nothing different: a gain of 10 points on 20 clients of
    20 examples is found in most cases."""
    rng = np.random.default_rng(15)
    found = 0
    for _ in range(200):
        skill = rng.beta(8, 8, size=20)
        better = np.minimum(skill + 0.1, 1)
        d = (rng.binomial(EXAMPLES, better) - rng.binomial(EXAMPLES, skill)) / EXAMPLES
        found += statistics.wilcoxon(d) < 0.05
    assert found > 100
