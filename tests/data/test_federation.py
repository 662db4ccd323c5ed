"""Federations: who has what, cut into three parts that share nothing, under a name of its own."""

from typing import Any

import numpy as np
import pytest
import torch

from golden import raises
from isthmus import Federation, IsthmusError
from isthmus.data.arrays import Arrays
from isthmus.data.federation import Splits, divide


def own(**changes: Any) -> Federation:
    """Makes two clients of ten examples each, numbered 0 to 19."""
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    given = {"x": x, "y": np.arange(20) % 2, "clients": np.repeat([0, 1], 10), "seed": 1}
    return Federation.of(**(given | changes))


@pytest.mark.parametrize(
    ("n", "test", "validation", "sizes"),
    [
        (10, 0.2, 0.1, (7, 1, 2)),
        (99, 0.2, 0.1, (72, 8, 19)),
        (100, 0.2, 0.1, (72, 8, 20)),
        (1200, 0.2, 0.0, (960, 0, 240)),
        (600, 0.2, 0.0, (480, 0, 120)),
        (120, 0.2, 0.0, (96, 0, 24)),
        (100, 0.29, 0.0, (71, 0, 29)),
        (3, 0.34, 0.1, (1, 1, 1)),
    ],
)
def test_parts_have_their_shares(
    n: int, test: float, validation: float, sizes: tuple[int, int, int]
) -> None:
    """Test floor(test * n); of the rest, floor(validation * rest), one at least where it is not 0.

    99: floor(19.8) = 19, rest 80, a tenth 8, 72 left. 1200, 600 and 120 are the shares of 50, 100
    and 500 clients on MNIST, of which the paper trains on 960, 480 and 96. 0.29 * 100 is 29,
    although in binary it falls short of it.
    """
    (parts,) = divide([np.arange(n)], test, validation, seed=3)
    assert tuple(len(part) for part in parts) == sizes


def test_parts_are_disjoint_and_complete() -> None:
    shares = [np.arange(0, 200, 2), np.arange(1, 200, 2)]
    for share, parts in zip(shares, divide(shares, 0.2, 0.1, seed=3), strict=True):
        assert sorted(np.concatenate(parts).tolist()) == share.tolist()


def test_parts_are_drawn_at_random_for_each_client_by_itself() -> None:
    """Of 100 examples, the chance that a random test part of 20 is one given set is 1 / 5e20."""
    share = np.arange(100)
    first, second = divide([share, share], 0.2, 0.1, seed=3)
    assert set(first.test) != set(second.test)
    assert first.test.tolist() != list(range(20))
    (alone,) = divide([share], 0.2, 0.1, seed=3)
    (other,) = divide([share], 0.2, 0.1, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(first, alone, strict=True))
    assert set(first.test) != set(other.test)


@pytest.mark.parametrize(
    ("n", "test", "validation"), [(4, 0.2, 0.1), (1, 0.2, 0.1), (2, 0.5, 0.1), (0, 0.2, 0.0)]
)
def test_too_few_examples_are_refused(n: int, test: float, validation: float) -> None:
    """floor(0.2 * 4) = 0 test examples; one example cannot be both of two kinds; 2 not of three."""
    with raises(IsthmusError):
        divide([np.arange(50), np.arange(n)], test, validation, seed=0)


@pytest.mark.parametrize(
    ("test", "validation"),
    [(-0.2, 0.1), (0.0, 0.1), (0.2, 1.0)],
)
def test_shares_outside_their_range_are_refused(test: float, validation: float) -> None:
    with raises(IsthmusError):
        divide([np.arange(50)], test, validation, seed=0)


def test_a_part_holds_the_rows_of_its_client() -> None:
    """Row r holds 3r, 3r + 1, 3r + 2 and the label r mod 2; client 1 has rows 10 to 19."""
    federation = own()
    rows = []
    for name in ("train", "validation", "test"):
        x, y = federation.split(1, name)
        assert x.dtype == torch.float32
        assert y.dtype == torch.int64
        found = (x[:, 0] / 3).int()
        assert torch.equal(found % 2, y.int())
        rows += found.tolist()
    assert sorted(rows) == list(range(10, 20))
    assert federation.sizes(1) == (7, 1, 2)
    assert federation.label_counts(1).tolist() == [5, 5]


def test_what_a_part_gives_is_a_copy() -> None:
    federation = own()
    before = federation.digest()
    federation.split(0, "train").x.zero_()
    federation.split(0, "train").y.zero_()
    federation.server_test().x.add_(1)
    assert federation.digest() == before


def test_integers_are_scaled_and_numbers_are_not() -> None:
    """255 / 255 = 1, 51 / 255 = 0.2; a float32 stays what it is."""
    rows = np.array([0])
    parts = [Splits(rows, rows, rows)]
    pixels, numbers = np.array([[255, 51]], np.uint8), np.array([[255, 51]], np.float32)
    y = np.array([0])
    integers = Federation(Arrays(pixels, y, pixels, y, classes=1, scale=255.0), parts)
    floats = Federation(Arrays(numbers, y, numbers, y, classes=1, scale=255.0), parts)
    assert torch.equal(integers.split(0, "train").x, torch.tensor([[1.0, 0.2]]))
    assert torch.equal(integers.server_test().x, torch.tensor([[1.0, 0.2]]))
    assert torch.equal(floats.split(0, "train").x, torch.tensor([[255.0, 51.0]]))


def test_clients_may_be_named() -> None:
    """Sorted: ann 12, bob 8; so ann is client 0 however the rows lie."""
    names = np.array(["bob", "ann", "ann", "bob", "ann"] * 4)
    federation = own(clients=names)
    assert len(federation) == 2
    assert [sum(federation.sizes(i)) for i in range(2)] == [12, 8]
    assert set(names[np.concatenate(federation.splits[0])]) == {"ann"}
    assert own(clients=names.tolist()).digest() == federation.digest()


def test_client_numbers_need_not_be_consecutive() -> None:
    federation = own(clients=np.repeat([907, -4], 10))
    assert sorted(np.concatenate(federation.splits[0]).tolist()) == list(range(10, 20))


def test_classes_are_counted_over_clients_and_server() -> None:
    """The clients have the labels 0 and 1, the server one example of label 4: five classes."""
    federation = own(server_test=([[1.0, 2.0, 3.0]], [4]))
    assert federation.classes == 5
    assert federation.server_test().y.tolist() == [4]
    assert own().classes == 2
    assert len(own().server_test().y) == 0


def test_equal_federations_have_equal_names() -> None:
    x = np.asfortranarray(np.arange(60, dtype=np.float32).reshape(20, 3))
    assert own(x=x).digest() == own().digest()


def test_every_difference_changes_the_name() -> None:
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    y = np.arange(20) % 2
    touched = x.copy()
    touched[7, 1] = np.nextafter(touched[7, 1], 100, dtype=np.float32)
    flipped = y.copy()
    flipped[[2, 3]] = flipped[[3, 2]]
    plain = own()
    train, validation, test = plain.splits[0]
    moved = Splits(train[:-1], np.concatenate([train[-1:], validation]), test)
    others = [
        own(x=touched),
        own(x=x.astype(np.float64)),
        own(x=x.reshape(20, 1, 3)),
        own(y=flipped),
        own(seed=2),
        own(test=0.3),
        own(validation=0.3),
        own(clients=np.repeat([0, 1], [11, 9])),
        own(server_test=(x[:1], y[:1])),
        Federation(plain.arrays._replace(scale=16.0), plain.splits),
        Federation(plain.arrays._replace(classes=3), plain.splits),
        Federation(plain.arrays, plain.splits[::-1]),
        Federation(plain.arrays, [moved, plain.splits[1]]),
    ]
    assert len({federation.digest() for federation in [plain, *others]}) == 14


NAN = np.full((20, 3), np.nan)
REFUSED: dict[str, dict[str, Any]] = {
    "lengths": {"y": np.zeros(19, np.int64)},
    "nothing": {"x": NAN[:0], "y": np.zeros(0, int), "clients": np.zeros(0, int)},
    "float labels": {"y": np.zeros(20)},
    "named labels": {"y": np.array(["a"] * 20)},
    "negative labels": {"y": np.full(20, -1)},
    "one-hot labels": {"y": np.zeros((20, 2), int)},
    "words": {"x": np.array([["a"]] * 20)},
    "nan": {"x": NAN},
    "server lengths": {"server_test": (NAN[:2, :], np.zeros(3, int))},
    "server shape": {"server_test": (np.ones((1, 4)), np.zeros(1, int))},
    "server labels": {"server_test": (np.ones((1, 3)), np.zeros(1))},
    "server nan": {"server_test": (NAN[:1], np.zeros(1, int))},
    "halves of tokens": {"tokens": True},
    "negative tokens": {"x": np.full((20, 3), -1), "tokens": True},
    "a small client": {"clients": np.repeat([0, 1], [18, 2])},
}


@pytest.mark.parametrize("name", REFUSED)
def test_arrays_that_make_no_federation_are_refused(name: str) -> None:
    changes = REFUSED[name]
    with raises(IsthmusError):
        own(**changes)


def test_channels_are_normalised_after_scaling() -> None:
    """(51 / 255 - 0.1) / 0.5 = 0.2 in one channel, (51 / 255 - 0.2) / 0.25 = 0 in the other."""
    pixels = np.full((10, 2, 1, 1), 51, np.uint8)
    y = np.zeros(10, np.int64)
    arrays = Arrays(pixels, y, pixels, y, 1, scale=255.0, mean=(0.1, 0.2), std=(0.5, 0.25))
    federation = Federation(arrays, divide([np.arange(10)], 0.2, 0.1, seed=1))
    found = federation.split(0, "train").x[0].flatten()
    torch.testing.assert_close(found, torch.tensor([0.2, 0.0]))


def test_tokens_stay_whole_numbers() -> None:
    symbols = np.arange(20, dtype=np.uint8).reshape(10, 2)
    y = np.zeros(10, np.int64)
    arrays = Arrays(symbols, y, symbols[:0], y[:0], 1, scale=255.0, tokens=True)
    federation = Federation(arrays, divide([np.arange(10)], 0.2, 0.1, seed=1))
    part = federation.split(0, "train")
    assert part.x.dtype == torch.int64
    assert (part.x == torch.as_tensor(symbols[federation.splits[0].train])).all()


def test_own_tokens_are_not_scaled() -> None:
    given = {"y": np.arange(20) % 2, "clients": np.repeat([0, 1], 10)}
    federation = Federation.of(np.arange(40).reshape(20, 2), tokens=True, **given)
    part = federation.split(1, "test").x
    assert part.dtype == torch.int64
    assert part.min() >= 20
    plain = Federation.of(np.arange(40).reshape(20, 2), **given)
    assert plain.split(1, "test").x.dtype == torch.float32
    assert plain.digest() != federation.digest()


def test_data_that_come_divided_stay_divided() -> None:
    """Client 0 brings all three parts; client 1 brings a test part, and gets its validation cut."""
    split = np.array([0, 0, 1, 2, 2, 0, 0, 0, 2, 2], np.int8)
    first, second = divide([np.arange(5), np.arange(5, 10)], 0.2, 0.34, seed=1, split=split)
    assert [part.tolist() for part in first] == [[0, 1], [2], [3, 4]]
    assert second.test.tolist() == [8, 9]
    assert len(second.validation) == 1
    assert sorted([*second.train, *second.validation]) == [5, 6, 7]
