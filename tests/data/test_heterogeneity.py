"""The figures of a division, against hand-worked tables, and the picture of it."""

from itertools import combinations
from math import log

import numpy as np
import pytest

from isthmus.cli.picture import ROWS, draw_picture
from isthmus.data.heterogeneity import Spread, measure_heterogeneity


def test_the_figures_of_three_clients() -> None:
    """Sizes are 4, 4, 8, label shares (1, 0), (1/2, 1/2), (1/4, 3/4).

    entropy     0, ln 2 = 0.6931, (ln 4) / 4 + 3 (ln 4/3) / 4 = 0.5623: mean 0.4185
    pooled      (4 + 2 + 2, 2 + 6) / 16 = (1/2, 1/2): ln 2
    distances   1/2, 3/4, 1/4: mean 1/2
    Gini        differences 0, 4, 4 of unordered pairs, over 3 * 16: 1/6
    """
    found = measure_heterogeneity([[4, 0], [2, 2], [2, 6]])
    assert (found.clients, found.examples, found.classes) == (3, 16, 2)
    assert found.sizes == Spread(4, 4.0, 8)
    assert found.classes_per_client == Spread(1, 2.0, 2)
    third = log(4) / 4 + 3 * log(4 / 3) / 4
    assert found.entropy == pytest.approx((0 + log(2) + third) / 3, abs=1e-12)
    assert found.pooled_entropy == pytest.approx(log(2), abs=1e-12)
    assert found.distance == pytest.approx(0.5, abs=1e-12)
    assert found.gini == pytest.approx(1 / 6, abs=1e-12)


def test_the_mean_distance_is_that_of_all_pairs() -> None:
    """The sorted sum against the pairs themselves; sums of some 10^4 rounded numbers."""
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 9, size=(60, 7)) + np.eye(60, 7, dtype=int)
    shares = counts / counts.sum(axis=1, keepdims=True)
    pairs = [np.abs(p - q).sum() / 2 for p, q in combinations(shares, 2)]
    assert measure_heterogeneity(counts).distance == pytest.approx(np.mean(pairs), abs=1e-10)


def test_equal_clients_do_not_differ_and_strangers_do_so_altogether() -> None:
    same = measure_heterogeneity(np.full((5, 4), 3))
    assert (same.gini, same.distance, same.entropy) == pytest.approx((0, 0, log(4)), abs=1e-12)
    strangers = measure_heterogeneity(np.diag([7, 7, 7]))
    assert (strangers.distance, strangers.entropy) == (1.0, 0.0)
    assert strangers.pooled_entropy == pytest.approx(log(3), abs=1e-12)


def test_one_client_has_nobody_to_differ_from() -> None:
    found = measure_heterogeneity([[3, 1]])
    assert (found.distance, found.gini) == (0.0, 0.0)


def test_the_picture_shades_by_share() -> None:
    """Shares 1, 1/2 + 1/2, and 1/4 + 3/4 of the largest, 1: four, two and two, one and three."""
    lines = draw_picture(np.array([[4, 0], [2, 2], [2, 6]])).splitlines()
    assert [line[18:] for line in lines[1:4]] == ["██", "▒▒▒▒", "░░▓▓"]
    assert [line[:16] for line in lines[:2]] == ["client  examples", "     0         4"]
    assert "█ up to 100%" in lines[4]


def test_a_class_that_is_there_is_never_blank() -> None:
    (_, row, _) = draw_picture(np.array([[1, 99_999]])).splitlines()
    assert row.endswith("░░██")


def test_the_picture_is_plain_where_the_terminal_is() -> None:
    for encoding in ("ascii", "latin-1", "unknown"):
        assert draw_picture(np.array([[4, 0], [2, 2]]), encoding=encoding).isascii()


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (40, 62), (1000, 200), (5000, 2000)])
@pytest.mark.parametrize("width", [1, 30, 80, 200])
def test_the_picture_fits(clients: int, classes: int, width: int) -> None:
    """A row is as wide as the terminal at most, but for its two numbers and a cell."""
    counts = np.random.default_rng(1).integers(1, 5, size=(clients, classes))
    lines = draw_picture(counts, width).splitlines()
    rows = lines[1 : 1 + min(clients, ROWS)]
    assert all(line.split()[0].isdigit() for line in rows)
    assert max(map(len, rows)) <= max(width, 19)
    assert any(f"of {clients:,} clients" in line for line in lines) == (clients > ROWS)


def test_the_clients_in_the_picture_stand_for_all() -> None:
    """100 clients in five kinds, 20 of each, in turn: eight of each kind are shown."""
    counts = np.eye(5, dtype=int)[np.arange(100) % 5]
    rows = draw_picture(counts).splitlines()[1:41]
    assert [sum(int(row.split()[0]) % 5 == kind for row in rows) for kind in range(5)] == [8] * 5
