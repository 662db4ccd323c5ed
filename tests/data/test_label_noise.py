"""Label noise: the matrices, who is corrupted and who is not, and what the release does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.data.label_noise import MATRICES, pair, redraw, symmetric
from isthmus.experiment.registry import describe_choices
from isthmus.run.build import read_federation
from isthmus.streams import stream

SYNTHETIC = {"name": "synthetic", "samples": 6000, "classes": 5}


def made(noise: Any, **changes: Any) -> Federation:
    given = {"data": SYNTHETIC, "partition": "dirichlet-hsu", "clients": 10, "seed": 4}
    return read_federation(Experiment(noise=noise, **(given | changes)), Path())


def changed(clean: Federation, noisy: Federation, part: str) -> list[float]:
    """The share of changed labels in a part of every client."""
    return [
        float((clean.split(i, part).y != noisy.split(i, part).y).double().mean())
        for i in range(len(clean))
    ]


@pytest.mark.parametrize("matrix", MATRICES.values())
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 0.6, 1.0])
def test_rows_are_distributions_that_keep_a_label_with_1_minus_the_rate(
    matrix: Any, rate: float
) -> None:
    rows = matrix(7, rate)
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.diag(rows), 1 - rate, rtol=1e-12)
    assert (rows >= 0).all()


def test_pair_goes_to_the_next_class_and_symmetric_to_all_others() -> None:
    """With C = 4: all of 0.4 to one neighbour; 0.6 / 3 = 0.2 to each of three others."""
    assert np.flatnonzero(pair(4, 0.4)[3]).tolist() == [0, 3]
    assert pair(4, 0.4)[1, 2] == 0.4
    np.testing.assert_allclose(symmetric(4, 0.6)[2], [0.2, 0.2, 0.4, 0.2])


@pytest.mark.parametrize(
    "transition", [pair(10, 0.1), pair(10, 0.4), symmetric(10, 0.2), symmetric(10, 0.6)]
)
def test_what_is_drawn_follows_the_matrix(transition: Any) -> None:
    """Of n = 20,000 labels of class i, n T_ij +- sqrt(n T_ij (1 - T_ij)) become j.

    A right cell is beyond 3 deviations with a chance of 0.27 %, so that some of 100 are with 24 %:
    that alone is no alarm. Five or more of them are with 1e-5 (for pair noise, whose cells come in
    twos, with 2e-6), and one is beyond 5 deviations with 6e-5: for the four matrices together, any
    seed is a false alarm with less than 3e-4. A cell that is off by 0.02 is 5.7 deviations off.
    """
    n = 20_000
    y = np.repeat(np.arange(10), n)
    drawn = redraw(y, transition, stream(6, "test"))
    counts = np.zeros((10, 10))
    np.add.at(counts, (y, drawn), 1)
    apart = np.abs(counts - n * transition)
    deviation = np.sqrt(n * transition * (1 - transition))
    assert (apart > 3 * deviation + 1e-6).sum() < 5  # 1e-6: where T_ij is 0, but for rounding
    assert (apart <= 5 * deviation + 1e-6).all()


@pytest.mark.parametrize("name", ["pair", "symmetric"])
def test_only_training_labels_are_corrupted(name: str) -> None:
    """6,000 examples, 72 % of them trained on: the share that changes is 0.4 +- 0.0075, so that
    five deviations are 0.037. Division, validation, test and the server's test set stay."""
    clean, noisy = made("none"), made({"name": name, "rate": 0.4})
    for ours, theirs in zip(clean.splits, noisy.splits, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    rows = np.concatenate([part.train for part in clean.splits])
    share = (clean.arrays.y[rows] != noisy.arrays.y[rows]).mean()
    assert share == pytest.approx(0.4, abs=0.037)
    for part in ("validation", "test"):
        assert changed(clean, noisy, part) == [0.0] * 10
    assert np.array_equal(clean.arrays.test_y, noisy.arrays.test_y)
    assert clean.digest() != noisy.digest()
    assert f"{name} noise changed " in noisy.notes[-1]
    check(noisy.notes[-1])


def test_pair_noise_at_clients_shifts_by_one() -> None:
    clean, noisy = made("none").arrays.y, made({"name": "pair", "rate": 1.0}).arrays.y
    assert set(((noisy - clean) % 5).tolist()) == {0, 1}


def test_validation_labels_are_corrupted_only_if_asked() -> None:
    clean = made("none")
    noisy = made({"name": "symmetric", "rate": 1.0, "validation_too": True})
    assert changed(clean, noisy, "train") == changed(clean, noisy, "validation") == [1.0] * 10
    assert changed(clean, noisy, "test") == [0.0] * 10
    check(noisy.notes[-1])


def test_clients_have_rates_of_their_own() -> None:
    """Uniform in 0.1 to 0.5; a client trains on 432, so that its share is off by 0.024 at most in a
    deviation, 0.12 in five. Ten rates lie within 0.1 of each other with a chance below 1e-4."""
    noise = {"name": "symmetric", "rate": 0.3, "rate_spread": 0.2}
    shares = changed(made("none"), made(noise), "train")
    assert min(shares) > 0.1 - 0.12
    assert max(shares) < 0.5 + 0.12
    assert max(shares) - min(shares) > 0.1
    assert "by client" in made(noise).notes[-1]


def test_rates_stay_between_0_and_1() -> None:
    noise = {"name": "symmetric", "rate": 0.0, "rate_spread": 1.0}
    shares = changed(made("none"), made(noise), "train")
    assert shares.count(0.0) >= 1  # half of the rates are clipped to 0: none with 1 in 1,000
    assert max(shares) > 0


def test_a_seed_decides_the_noise() -> None:
    assert made("pair").digest() == made("pair").digest() != made("pair", seed=5).digest()
    y = made("none").arrays.y
    flipped = [made({"name": "pair", "rate": 0.5}, seed=4).arrays.y != y for _ in range(2)]
    assert np.array_equal(*flipped)


def test_the_released_noise_is_swapped_and_reaches_the_clients_tests() -> None:
    """Flag "symmetric" shifts by one, flag "pair" goes anywhere; a fifth of 6,000 labels changes,
    +- 31; clients' test parts have their share of it; the server's test set is clean."""
    data = Experiment(data=SYNTHETIC, seed=4).data
    clean = made("none", partition="iid", data=dict(data))
    for flag, shifts in (("symmetric", {0, 1}), ("pair", {0, 1, 2, 3, 4})):
        noisy = made({"name": "kdd-code-noise", "flag": flag, "rate": 0.2}, partition="iid")
        apart = (noisy.arrays.y - clean.arrays.y) % 5
        assert set(apart.tolist()) == shifts
        assert (apart > 0).sum() == pytest.approx(1200, abs=155)
        assert np.mean(changed(clean, noisy, "test")) == pytest.approx(0.2, abs=0.06)
        assert np.array_equal(clean.arrays.test_y, noisy.arrays.test_y)
        check(noisy.notes[0])


def test_the_released_noise_comes_before_the_partition() -> None:
    """Two shards hold few of the labels that the client sees; cleaned, they are of all five."""
    noisy = made({"name": "kdd-code-noise", "rate": 0.4}, partition="pathological")
    clean = made("none").arrays.y
    for i, parts in enumerate(noisy.splits):
        assert (noisy.label_counts(i) > 0).sum() <= 4
        assert len(np.unique(clean[np.concatenate(parts)])) == 5


def test_noise_reaches_data_from_python_and_a_resumed_run(tmp_path: Path) -> None:
    x = stream(1, "x").standard_normal((300, 4)).astype(np.float32)
    data = Federation.of(x, (x[:, 0] > 0).astype(int), clients=np.arange(300) % 6, seed=1)
    settings: dict[str, Any] = {"method": "fedavg", "rounds": 2, "epochs": 1}
    noisy = federate(
        Experiment(noise={"name": "pair", "rate": 0.4}, **settings), data=data, out=tmp_path / "run"
    )
    assert noisy.setting.federation.digest() != data.digest()
    assert noisy.digest != federate(Experiment(**settings), data=data).digest
    from isthmus import open, resume

    assert resume(tmp_path / "run", data=data).digest == noisy.digest
    with open(tmp_path / "run", data=data) as run:
        assert run.experiment.noise["rate"] == 0.4
    with raises(IsthmusError):
        federate(Experiment(noise="kdd-code-noise", **settings), data=data)


def test_one_class_cannot_be_noisy() -> None:
    data = Federation.of(np.zeros((40, 3), np.float32), np.zeros(40, int), np.arange(40) % 2)
    with raises(IsthmusError):
        federate(Experiment(noise="pair", method="fedavg"), data=data)


def test_experiments_of_before_there_was_noise_still_load(tmp_path: Path) -> None:
    text = Experiment().toml()
    before = text.replace('\n[noise]\nname = "none"\n', "")
    assert before != text
    (tmp_path / "before.toml").write_text(before)
    assert Experiment.load(tmp_path / "before.toml") == Experiment()


def test_the_command_line_knows_noise(isthmus: Isthmus) -> None:
    assert [entry["name"] for entry in describe_choices("noise")] == [
        "none",
        "pair",
        "symmetric",
        "kdd-code-noise",
    ]
    listed = json.loads(isthmus("list", "noise", "--json").out)
    assert listed[1]["options"] == {"rate": 0.1, "rate_spread": 0.0, "validation_too": False}
    check(isthmus("data", "show", "--set", "noise=pair", "--set", "rate=0.4").out)
    shown = json.loads(isthmus("data", "show", "--set", "noise=pair", "--json").out)
    assert shown["noise"]["rate"] == 0.1
    check(isthmus("data", "show", "--set", "noise=pair", "--set", "rate=1.4").mistake)
    check(isthmus("data", "show", "--set", "noise=own").mistake)
