"""Streams: a draw depends on its name alone, and cohorts are uniform."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch

from isthmus import Experiment, federate, streams
from isthmus.cohort import Clients


def test_a_stream_does_not_feel_other_draws() -> None:
    alone = streams.stream(11, "batches", 3, 7).random(6)
    one, other = streams.stream(11, "batches", 3, 7), streams.stream(11, "batches", 3, 8)
    mixed = []
    for _ in range(6):
        other.random(5)
        np.random.default_rng().random(3)
        mixed.append(one.random())
    assert mixed == alone.tolist()


def test_streams_of_distinct_names_are_distinct() -> None:
    """The neighbours are names that a careless join of their pieces would confuse."""
    names: list[tuple[int, str, *tuple[int, ...]]] = [
        (1, "batches"),
        (1, "batches", 0),
        (1, "batches", 2, 3),
        (1, "batches", 3, 2),
        (1, "batches", 23),
        (12, "batches", 3),
        (1, "batches", 2, 3, 0),
        (1, "uniforms", 2, 3),
        (11, "batches", 2, 3),
        (1, "batches", -2, 3),
    ]
    assert len({streams.key(*name) for name in names}) == len(names)
    firsts = {streams.stream(*name).random() for name in names}
    assert len(firsts) == len(names)


def test_a_derived_seed_fits_into_63_bits() -> None:
    seeds = [streams.seed_of(0, "start", i) for i in range(200)]
    assert len(set(seeds)) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62
    torch.Generator().manual_seed(max(seeds))


def test_a_cohort_is_drawn_without_replacement_in_ascending_order() -> None:
    for t in range(50):
        ids = streams.cohort(5, t, total=9, size=4)
        assert len(set(ids)) == 4
        assert ids == sorted(ids)
        assert set(ids) <= set(range(9))
    assert streams.cohort(5, 0, total=9, size=9) == list(range(9))


def test_every_cohort_is_equally_likely() -> None:
    """Of 6 clients there are 20 cohorts of 3; 4,000 rounds bring 200 of each on average.

    The sum of (count - 200)^2 / 200 then follows chi^2 with 19 degrees of freedom. Its tail
    probability must lie strictly between 5e-5 and 1 - 5e-5: neither too uneven nor too even. For
    another seed this fails by chance once in 10,000.
    """
    counts = Counter(tuple(streams.cohort(2024, t, total=6, size=3)) for t in range(4000))
    every = list(combinations(range(6), 3))
    statistic = sum((counts[ids] - 200) ** 2 / 200 for ids in every)
    half = torch.tensor([19 / 2, statistic / 2], dtype=torch.float64)
    tail = torch.special.gammaincc(half[0], half[1]).item()
    assert sum(counts[ids] for ids in every) == 4000
    assert 5e-5 < tail < 1 - 5e-5


def test_all_methods_see_the_same_cohorts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    plain = Clients.map

    def listening(self: Clients, *arguments: object, **named: object) -> object:
        seen.append(self.ids)
        return plain(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Clients, "map", listening)
    for method in ("fedavg", "fedprox", "superfed-mm", "superfed-lm"):
        settings = {"data": {"name": "synthetic", "samples": 200}, "clients": 8, "epochs": 1}
        federate(Experiment(method=method, rounds=3, seed=6, clients_per_round=3, **settings))
    drawn = [streams.cohort(6, t, total=8, size=3) for t in range(3)]
    assert drawn[0] != drawn[1]
    assert seen == drawn * 4
