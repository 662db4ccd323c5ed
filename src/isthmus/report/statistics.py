"""The uncertainty of means and differences: intervals, paired tests, ranks.

Values come as one array per seed, one number per client. Sizes: S seeds, N clients of a seed,
k methods, n data sets.

scipy.stats is imported where it is called: that takes longer than writing most pages.
"""

from collections.abc import Sequence
from math import ceil, inf, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from isthmus.run.columns import Floats

LEVEL = 0.95  # of intervals; tests are at 1 - LEVEL
RESAMPLES = 5000
EXACT = 50  # differences up to which all signs are counted
CELLS = 4_000_000  # numbers that a bootstrap holds at a time


class Interval(NamedTuple):
    """A mean, and the bounds of its interval; nan where too little is known for any."""

    mean: float
    low: float
    high: float

    def clip(self, bounds: tuple[float, float]) -> "Interval":
        """Cut off what no mean can be.

        >>> Interval(0.9, 0.7, 1.1).clip((0, 1))
        Interval(mean=0.9, low=0.7, high=1.0)
        """
        low, high = np.clip([self.low, self.high], *bounds)
        return Interval(self.mean, float(low), float(high))

    def holds(self, value: float) -> bool:
        """Whether a value is within the bounds, as any is where there are none."""
        return not (value < self.low or value > self.high)


class WinTieLoss(NamedTuple):
    """How many pairs are above, equal to and below their reference."""

    wins: int
    ties: int
    losses: int


def mean(values: Sequence[ArrayLike]) -> float:
    """Return the mean over seeds of the mean over clients: (1 / S) sum_s (1 / N_s) sum_i v_si.

    Each seed counts once, and within it each client once. A nan is a client without a value.

    >>> mean([[0.5, 0.75, nan], [0.875]])
    0.75
    """
    seeds = _drop_unknown(values)
    return float(np.mean([seed.mean() for seed in seeds])) if seeds else nan


def bootstrap(
    values: Sequence[ArrayLike],
    crossed: bool = False,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return the mean over seeds and clients with its hierarchical percentile interval.

    A resample draws S seeds with replacement and, for each of them, N_s of its clients with
    replacement; its value is `mean`. With one seed only clients are drawn. `crossed` says that the
    clients of all seeds are the same ones: then a resample draws S seeds, and N clients once for
    all of them. The bounds are the quantiles (1 - level) / 2 and (1 + level) / 2 of the resamples.

    Percentile and not BCa: a mean is hardly biased, BCa's acceleration would come from a jackknife
    over two or three seeds, and BCa is undefined where all values are equal. The draws are fixed:
    the same values have the same interval.

    >>> bootstrap([[0.5, 0.5], [0.5, 0.5]])
    Interval(mean=0.5, low=0.5, high=0.5)
    >>> bootstrap([[0.0, 1.0]])  # of (0, 0), (0, 1), (1, 0), (1, 1)
    Interval(mean=0.5, low=0.0, high=1.0)
    >>> bootstrap([[0.25]])  # one value tells nothing of others
    Interval(mean=0.25, low=nan, high=nan)
    """
    seeds = _drop_unknown(values)
    size = sum(len(seed) for seed in seeds)
    if size < 2:
        return Interval(mean(seeds), nan, nan)
    rng = np.random.default_rng(0)
    resample = _resample_crossed if crossed else _resample_nested
    parts = np.array_split(np.arange(resamples), ceil(resamples * size / CELLS))
    means = np.concatenate([resample(seeds, len(part), rng) for part in parts])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean(seeds), float(low), float(high))


def mean_of_sample(values: ArrayLike, total: int, level: float = LEVEL) -> Interval:
    """Estimate the mean over `total` clients from n of them, drawn without replacement.

    The standard error is sqrt((1 - n / total) s^2 / n), where s^2 = sum (v_i - v)^2 / (n - 1): of
    all clients the mean is known. The bounds are as many of them away as Student's t with n - 1
    degrees of freedom says. A nan is a client without a value.

    >>> mean_of_sample([0.25, 0.5, 0.75], total=3)
    Interval(mean=0.5, low=0.5, high=0.5)
    >>> mean_of_sample([0.25, 0.5, 0.75], total=30)  # 4.303 * sqrt(0.9 * 0.0625 / 3) = 0.589
    Interval(mean=0.5, low=-0.0891..., high=1.0891...)
    """
    v = np.asarray(values, dtype=np.float64)
    return ratio_of_sample(v, np.ones_like(v), total, level)


def ratio_of_sample(
    values: ArrayLike, sizes: ArrayLike, total: int, level: float = LEVEL
) -> Interval:
    """Estimate the mean over the examples of `total` clients from n of them.

    Both sums are estimated, that of right answers and that of examples: r = sum m_i v_i / sum m_i
    over the sample. Its standard error is that of the mean of the residuals m_i (v_i - r), over the
    mean of the m_i.

    >>> ratio_of_sample([0.5, 1.0], sizes=[30, 10], total=2)
    Interval(mean=0.625, low=0.625, high=0.625)
    """
    v, m = (np.asarray(column, dtype=np.float64) for column in (values, sizes))
    v, m = v[~np.isnan(v)], m[~np.isnan(v)]
    n = len(v)
    if not n:
        return Interval(nan, nan, nan)
    ratio = float(m @ v / m.sum())
    if n < 2:
        return Interval(ratio, nan, nan)
    from scipy import stats

    residuals = m * (v - ratio)
    error = sqrt((1 - n / total) / n * residuals @ residuals / (n - 1)) / m.mean()
    far = float(stats.t.ppf((1 + level) / 2, n - 1) * error)
    return Interval(ratio, ratio - far, ratio + far)


def pair(values: ArrayLike, reference: ArrayLike, n: ArrayLike) -> Floats:
    """Return the differences v_i - r_i of the clients that have both.

    Both are shares of the client's n_i examples, perhaps printed and read back; a difference is
    made a whole number of examples over n_i again, so that equal differences are equal.

    >>> pair([0.7, 0.5, nan], reference=[0.6, 0.5, 0.5], n=[10, 10, 10]).tolist()
    [0.1, 0.0]
    """
    v, r, n = (np.asarray(column, dtype=np.float64) for column in (values, reference, n))
    differences: Floats = np.rint(n * (v - r)) / n
    return differences[~np.isnan(differences)]


def win_tie_loss(differences: ArrayLike) -> WinTieLoss:
    """Count the differences above zero, at zero, and below it.

    >>> win_tie_loss([0.1, 0.0, -0.2, 0.3])
    WinTieLoss(wins=2, ties=1, losses=1)
    """
    d = np.asarray(differences, dtype=np.float64)
    wins, losses = int(np.sum(d > 0)), int(np.sum(d < 0))
    return WinTieLoss(wins, len(d) - wins - losses, losses)


def wilcoxon(differences: ArrayLike) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test.

    Differences of zero are dropped. W is the sum of the ranks r_i of |d_i| over d_i > 0, where ties
    share a rank; under the null the signs are fair coins, independent of each other. Up to 50
    differences p is exact, ties or not: 2 min(P(<= W), P(>= W)) over all 2^n signs. Beyond, W is
    taken as normal with mean sum r_i / 2 and variance sum r_i^2 / 4. Without a difference p is 1.

    >>> wilcoxon([1, 2, 3, 4, 5])  # two of the 2^5 signs are as extreme
    0.0625
    >>> wilcoxon([0, 0, 0])
    1.0
    """
    d = np.asarray(differences, dtype=np.float64)
    d = d[d != 0]
    ranks = _rank(np.abs(d))
    positive = ranks[d > 0].sum()
    if len(d) > EXACT:
        far = abs(positive - ranks.sum() / 2) / sqrt(np.sum(ranks**2) / 4)
        from scipy import stats

        return float(2 * stats.norm.sf(far))
    # Shared ranks are halves: their doubles are whole, and index the chances of each sum.
    doubled = (2 * ranks).astype(int)
    chances = np.zeros(doubled.sum() + 1)
    chances[0] = 1.0
    for rank in doubled:
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    at = int(2 * positive)
    return float(min(1.0, 2 * min(chances[: at + 1].sum(), chances[at:].sum())))


def holm(ps: ArrayLike) -> Floats:
    """Correct the p of m tests so that the chance of any false finding stays at the level.

    In ascending order, p'_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

    >>> holm([0.01, 0.04, 0.03, 0.005]).tolist()
    [0.03, 0.06, 0.06, 0.02]
    """
    p = np.asarray(ps, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(np.minimum(1, np.arange(len(p), 0, -1) * p[order]))
    return corrected


def average_ranks(scores: ArrayLike) -> Floats:
    """Return the mean over data sets of each method's rank; 1 is the highest score, ties share.

    >>> average_ranks([[0.9, 0.8, 0.7], [0.6, 0.6, 0.5]]).tolist()
    [1.25, 1.75, 3.0]
    """
    rounded = np.asarray(scores, dtype=np.float64).round(12)
    ranks: Floats = np.mean([_rank(-row) for row in rounded], axis=0)
    return ranks


def friedman(scores: ArrayLike) -> float:
    """Return the p of Friedman's test that k >= 3 methods rank alike over n data sets.

    chi^2 = 12 n / (k (k + 1)) * (sum_j R_j^2 - k (k + 1)^2 / 4), corrected for ties, with k - 1
    degrees of freedom; R_j are the average ranks. The approximation wants many data sets.

    >>> round(friedman([[0.9, 0.8, 0.7]] * 4), 4)  # chi^2 = 8, and exp(-8 / 2)
    0.0183
    """
    rounded = np.asarray(scores, dtype=np.float64).round(12)
    if np.all(rounded == rounded[:, :1]):
        return 1.0
    from scipy import stats

    return float(stats.friedmanchisquare(*rounded.T).pvalue)


def critical_difference(methods: int, data_sets: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference of average ranks: q sqrt(k (k + 1) / (6 n)).

    q is the quantile of the studentized range of k methods, infinitely many degrees of freedom,
    over the square root of 2.

    >>> round(critical_difference(methods=4, data_sets=14), 2)  # Demšar (2006), section 3.2.2
    1.25
    """
    from scipy import stats

    q = stats.studentized_range.ppf(level, methods, inf) / sqrt(2)
    return float(q * sqrt(methods * (methods + 1) / (6 * data_sets)))


def _rank(values: Floats) -> Floats:
    """Rank values, 1 for the least; equal ones share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def _drop_unknown(values: Sequence[ArrayLike]) -> list[Floats]:
    arrays = [np.asarray(seed, dtype=np.float64) for seed in values]
    known = [seed[~np.isnan(seed)] for seed in arrays]
    return [seed for seed in known if seed.size]


def _resample_nested(seeds: Sequence[Floats], resamples: int, rng: np.random.Generator) -> Floats:
    chosen = rng.integers(len(seeds), size=(resamples, len(seeds)))
    means = np.empty(chosen.shape)
    for place, clients in enumerate(seeds):
        # Clients with one value are one: of many clients few values differ.
        distinct, count = np.unique(clients, return_counts=True)
        drawn = chosen == place
        n = len(clients)
        counts = rng.multinomial(n, count / n, size=int(drawn.sum()))
        means[drawn] = counts @ distinct / n
    return np.asarray(means.mean(axis=1))


def _resample_crossed(seeds: Sequence[Floats], resamples: int, rng: np.random.Generator) -> Floats:
    values = np.stack(list(seeds))  # [S, N]
    s, n = values.shape
    of_seeds = rng.multinomial(s, np.full(s, 1 / s), size=resamples)
    of_clients = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
    means: Floats = np.sum(of_seeds @ values * of_clients, axis=1) / (s * n)
    return means
