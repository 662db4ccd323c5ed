"""FEMNIST and Shakespeare, from LEAF's files and others that may be damaged."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden import raises
from isthmus.data.arrays import TEST, TRAIN, VALIDATION, Arrays
from isthmus.data.named.femnist import Femnist
from isthmus.data.named.shakespeare import ALPHABET, Shakespeare, symbols
from isthmus.errors import IsthmusError

Load = Callable[[Path], Arrays]


def femnist(root: Path) -> Arrays:
    return Femnist().load(root, seed=0)


def shakespeare(root: Path, **options: Any) -> Arrays:
    return Shakespeare(**options).load(root, seed=0)


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def file_of(**users: tuple[list[Any], list[Any]]) -> dict[str, Any]:
    """Makes what LEAF writes of users' x and y."""
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def images(*levels: int) -> list[list[float]]:
    """Makes images of one grey each."""
    return [[level / 255] * 784 for level in levels]


WRITERS = file_of(f2=(images(0, 255, 7), [61, 0, 9]), f1=(images(128), [10]))


@pytest.mark.parametrize("folder", ["femnist/data/all_data", "femnist/all_data"])
@pytest.mark.parametrize("name", ["all_data_0.json", "all_data_0.json.gz"])
def test_a_writer_is_an_owner_in_the_order_of_names(tmp_path: Path, folder: str, name: str) -> None:
    write(tmp_path / folder / name, WRITERS)
    arrays = femnist(tmp_path)
    assert arrays.names == ("f1", "f2")
    assert arrays.owner is not None
    assert arrays.owner.tolist() == [0, 1, 1, 1]
    assert (arrays.x.dtype, arrays.x.shape, arrays.scale) == (np.uint8, (4, 1, 28, 28), 255.0)
    assert arrays.x[:, 0, 5, 9].tolist() == [128, 0, 255, 7]
    assert arrays.y.tolist() == [10, 61, 0, 9]
    assert (arrays.classes, len(arrays.test_y), arrays.split) == (62, 0, None)
    assert [arrays.labels[i] for i in (9, 10, 35, 36, 61)] == ["9", "A", "Z", "a", "z"]


def test_every_grey_of_a_byte_comes_back() -> None:
    """k / 255 in binary is off by at most 2^-53; times 255 that is far below 1/1000."""
    levels = np.arange(256)
    read = np.rint(np.array(json.loads(json.dumps((levels / 255).tolist()))) * 255)
    assert np.array_equal(read, levels)


def test_values_between_the_greys_are_kept_as_numbers(tmp_path: Path) -> None:
    """1/3 is 85/255, one of the greys; 0.3 * 255 = 76.5 is not, so that all are kept as numbers."""
    users = file_of(a=([[1 / 3] * 784], [1]), b=([[0.3] * 784], [2]))
    write(tmp_path / "femnist/data/all_data/0.json", users)
    arrays = femnist(tmp_path)
    assert arrays.x.dtype == np.float32
    assert arrays.x[:, 0, 0, 0].tolist() == [np.float32(85) / np.float32(255), np.float32(0.3)]


@pytest.mark.parametrize("folder", ["femnist/data", "femnist"])
def test_leafs_split_is_kept(tmp_path: Path, folder: str) -> None:
    """A writer of two files is one owner; what the training files say comes first."""
    write(tmp_path / folder / "train/a.json", file_of(f1=(images(1, 2), [1, 2])))
    write(tmp_path / folder / "train/b.json", file_of(f0=(images(3), [3])))
    write(tmp_path / folder / "test/a.json", file_of(f1=(images(4), [4])))
    write(tmp_path / folder / "test/b.json", file_of(f0=(images(5), [5])))
    arrays = femnist(tmp_path)
    assert arrays.y.tolist() == [3, 5, 1, 2, 4]
    assert arrays.split is not None
    assert arrays.split.tolist() == [TRAIN, TEST, TRAIN, TRAIN, TEST]
    assert arrays.owner is not None
    assert arrays.owner.tolist() == [0, 0, 1, 1, 1]


def test_a_writer_without_examples_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "femnist/data/all_data/0.json"
    write(path, file_of(a=([], []), b=(images(1), [1])))
    assert femnist(tmp_path).names == ("b",)


def packed(**changes: Any) -> dict[str, Any]:
    return {
        "x": np.arange(3, dtype=np.uint8)[:, None, None] * np.ones((28, 28), np.uint8),
        "y": np.array([5, 6, 7]),
        "owner": np.array([1, 0, 1]),
        "names": np.array(["b", "a"]),
    } | changes


def test_a_file_of_arrays_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "femnist").mkdir()
    np.savez(tmp_path / "femnist/femnist.npz", **packed())
    arrays = femnist(tmp_path)
    assert (arrays.names, arrays.y.tolist()) == (("a", "b"), [5, 7, 6])
    assert arrays.x[:, 0, 0, 0].tolist() == [0, 2, 1]
    assert arrays.split is None


WRONG_ARRAYS: dict[str, dict[str, Any]] = {
    "fewer labels": {"y": np.array([5, 6])},
    "a label too high": {"y": np.array([5, 6, 62])},
    "an owner without a name": {"owner": np.array([0, 1, 2])},
    "a negative owner": {"owner": np.array([0, 1, -1])},
    "numbers for bytes": {"x": np.zeros((3, 28, 28))},
    "another size": {"x": np.zeros((3, 8, 8), np.uint8)},
    "python objects": {"names": np.array(["a", None], object)},
    "a single number": {"owner": np.array(1)},
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_a_file_of_arrays_that_contradicts_itself_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "femnist").mkdir()
    np.savez(tmp_path / "femnist/femnist.npz", **packed(**WRONG_ARRAYS[name]))
    refused(femnist, tmp_path)


def refused(load: Load, root: Path) -> None:
    with raises(IsthmusError) as error:
        load(root)
    assert len(str(error.value)) < 400


IMAGE = [0.5] * 784
WRONG: dict[str, object] = {
    "a list": [1, 2],
    "no users": {"user_data": {}},
    "no data": {"users": ["a"]},
    "a user without data": {"users": ["a"], "user_data": {}},
    "a user that is a number": {"users": [4], "user_data": {"4": {}}},
    "a user named twice": file_of(a=([], [])) | {"users": ["a", "a"]},
    "no labels": {"users": ["a"], "user_data": {"a": {"x": []}}},
    "fewer labels": file_of(a=([IMAGE], [])),
    "a label too high": file_of(a=([IMAGE], [62])),
    "a label that is a word": file_of(a=([IMAGE], ["7"])),
    "a label that is a list": file_of(a=([IMAGE], [[1]])),
    "pixels that are words": file_of(a=([["0.5"] * 784], [1])),
    "too few pixels": file_of(a=([[0.5] * 783], [1])),
    "images of two sizes": file_of(a=([IMAGE, IMAGE[1:]], [1, 2])),
    "no number": file_of(a=([[float("nan")] * 784], [1])),
    "bytes for shares": file_of(a=([[255] * 784], [1])),
    "nobody": file_of(),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_femnist_file_is_one_line(tmp_path: Path, name: str) -> None:
    write(tmp_path / "femnist/data/all_data/0.json", WRONG[name])
    refused(femnist, tmp_path)


@pytest.mark.parametrize("deep", [100, 900, 100_000])
@pytest.mark.parametrize("place", ["@", '{"users": ["a"], "user_data": {"a": {"x": @, "y": [1]}}}'])
def test_deep_nesting_is_one_line(tmp_path: Path, deep: int, place: str) -> None:
    path = tmp_path / "femnist/data/all_data/0.json"
    path.parent.mkdir(parents=True)
    path.write_text(place.replace("@", "[" * deep + "]" * deep))
    refused(femnist, tmp_path)


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_every_truncation_of_a_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"shakespeare/roles{suffix}"
    write(path, {"users": ["a"], "text": {"a": "to be or not to be " * 50}})
    whole = path.read_bytes()
    shakespeare(tmp_path)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(IsthmusError):
            shakespeare(tmp_path)


def test_half_a_split_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "femnist/data/train/0.json", WRITERS)
    refused(femnist, tmp_path)


def test_a_split_by_user_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "femnist/data/train/0.json", file_of(a=(images(1), [1])))
    write(tmp_path / "femnist/data/test/0.json", file_of(b=(images(1), [1])))
    refused(femnist, tmp_path)


def test_files_of_two_runs_are_refused(tmp_path: Path) -> None:
    for name in ("all_data_0_keep_0.json", "all_data_0_keep_64.json"):
        write(tmp_path / "femnist/data/all_data" / name, WRITERS)
    refused(femnist, tmp_path)


@pytest.mark.parametrize("load", [femnist, shakespeare])
def test_missing_files_come_with_the_command_that_gets_them(tmp_path: Path, load: Load) -> None:
    root = tmp_path / "my data"
    refused(load, root)


def test_the_alphabet_is_leafs() -> None:
    """80 characters in LEAF's order, and symbol 80 for any other, also for half a surrogate."""
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert symbols(ALPHABET).tolist() == list(range(80))
    assert symbols("~{\t\x80é€😀\ud800").tolist() == [80] * 8


def spoken(length: int, shift: int = 0) -> str:
    """Makes a text whose every 80 characters tell where they are from."""
    rng = np.random.default_rng(shift)
    return "".join(ALPHABET[i] for i in rng.integers(0, 80, length))


def tell(root: Path, **texts: str) -> None:
    write(root / "shakespeare/roles.json", {"users": list(texts), "text": texts})


def test_windows_and_answers_of_a_short_text(tmp_path: Path) -> None:
    """83 characters have three windows; the answers are the 81st to the 83rd."""
    text = spoken(83)
    tell(tmp_path, a=text, b=spoken(80), c="")
    arrays = shakespeare(tmp_path, split="random")
    assert arrays.x.tolist() == [symbols(text[i : i + 80]).tolist() for i in range(3)]
    assert arrays.y.tolist() == symbols(text[80:]).tolist()
    assert (arrays.names, arrays.split) == (("a",), None)
    assert (arrays.x.dtype, arrays.classes, arrays.tokens) == (np.uint8, 81, True)
    assert len(arrays.labels) == 81


@pytest.mark.parametrize("stride", [1, 7, 80, 100])
def test_later_parts_share_one_character_with_earlier_ones_at_most(
    tmp_path: Path, stride: int
) -> None:
    """A window is found again by its text, which is random. Of 2,000 windows the first 1,600
    train, those from 1,679 to 1,799 validate, those from 1,879 on test. The last training window
    covers characters 1,599 to 1,679 with its answer, the first of validation begins at 1,679."""
    text = spoken(2080)
    tell(tmp_path, a=text)
    arrays = shakespeare(tmp_path, stride=stride)
    place = {symbols(text[i : i + 80]).tobytes(): i for i in range(2000)}
    starts = np.array([place[x.tobytes()] for x in arrays.x])
    assert arrays.split is not None
    ranges = {TRAIN: (0, 1600), VALIDATION: (1679, 1800), TEST: (1879, 2000)}
    for part, (first, end) in ranges.items():
        expected = [i for i in range(first, end) if i % stride == 0]
        assert starts[arrays.split == part].tolist() == expected
    assert np.array_equal(arrays.y, symbols(text)[starts + 80])


@pytest.mark.parametrize("n", [790, 800, 1000, 1234])
def test_the_test_part_is_leafs(tmp_path: Path, n: int) -> None:
    """LEAF with --tf 0.9 tests on the windows from int(0.9 n) + 79 on, and drops a role that has
    none of them: 790 - 711 = 79 windows leave none, 800 - 720 = 80 leave one."""
    tell(tmp_path, a=spoken(n + 80), long=spoken(2000))
    arrays = shakespeare(tmp_path)
    leafs = n - (int(0.9 * n) + 79)
    assert ("a" in arrays.names) == (leafs > 0)
    if leafs > 0:
        assert arrays.owner is not None
        assert arrays.split is not None
        assert int(((arrays.owner == 0) & (arrays.split == TEST)).sum()) == leafs


def windows(text: str, first: int, end: int) -> tuple[list[str], list[str]]:
    span = range(first, end)
    return [text[i : i + 80] for i in span], [text[i + 80] for i in span]


def test_leafs_windows_are_the_text_s(tmp_path: Path) -> None:
    texts = {"a": spoken(1400, 1), "b": spoken(1900, 2)}
    tell(tmp_path / "one", **texts)
    whole = file_of(**{name: windows(text, 0, len(text) - 80) for name, text in texts.items()})
    write(tmp_path / "two/shakespeare/data/all_data/all_data.json", whole)
    for stride in (1, 30):
        one, two = (shakespeare(tmp_path / name, stride=stride) for name in ("one", "two"))
        for name in ("x", "y", "owner", "split"):
            assert np.array_equal(getattr(one, name), getattr(two, name))


def test_leafs_training_part_gives_up_its_end_for_validation(tmp_path: Path) -> None:
    """LEAF's 1,800 training windows of 2,000: int(8/9 * 1,800) = 1,600 train, those from 1,679 on
    validate. This is what a text of 2,080 characters gives."""
    text = spoken(2080)
    write(tmp_path / "shakespeare/data/train/0.json", file_of(a=windows(text, 0, 1800)))
    write(tmp_path / "shakespeare/data/test/0.json", file_of(a=windows(text, 1879, 2000)))
    arrays = shakespeare(tmp_path)
    assert arrays.split is not None
    assert np.bincount(arrays.split).tolist() == [1600, 121, 121]
    kept = shakespeare(tmp_path, split="random")
    assert kept.split is not None
    assert np.bincount(kept.split).tolist() == [1800, 0, 121]


WRONG_WINDOWS: dict[str, object] = {
    "a short window": file_of(a=(["x" * 79], ["y"])),
    "a window that is a number": file_of(a=([80], ["y"])),
    "none to answer": file_of(a=(["x" * 80], [""])),
    "too little for three parts": file_of(a=(["x" * 80], ["y"])),
}


@pytest.mark.parametrize("name", WRONG_WINDOWS)
def test_a_wrong_window_is_one_line(tmp_path: Path, name: str) -> None:
    write(tmp_path / "shakespeare/data/all_data/all_data.json", WRONG_WINDOWS[name])
    refused(shakespeare, tmp_path)


WRONG_TEXTS: dict[str, object] = {
    "a list": [],
    "nobody": {"users": [], "text": {}},
    "a role without text": {"users": ["a"], "text": {}},
    "a text that is a list": {"users": ["a"], "text": {"a": ["b"]}},
    "a role that is a number": {"users": [1], "text": {}},
    "a role named twice": {"users": ["a", "a"], "text": {"a": "b"}},
}


@pytest.mark.parametrize("name", WRONG_TEXTS)
def test_a_wrong_text_is_one_line(tmp_path: Path, name: str) -> None:
    write(tmp_path / "shakespeare/roles.json", WRONG_TEXTS[name])
    refused(shakespeare, tmp_path)


def test_the_real_roles_are_the_660_of_the_paper() -> None:
    """LEAF's default keeps the roles with int(0.9 n) + 79 < n; SuPerFed trains on 660 of them. 80 %
    of their windows train, and 2 * 79 a role belong to no part."""
    root = os.environ.get("ISTHMUS_DATA_ROOT")
    if not root or not (Path(root) / "shakespeare" / "roles.json").is_file():
        pytest.skip("ISTHMUS_DATA_ROOT names no folder with Shakespeare")
    arrays = shakespeare(Path(root))
    assert len(arrays.names) == 660
    assert arrays.split is not None
    assert np.bincount(arrays.split).tolist() == [3_269_753, 356_559, 356_922]
    assert int(arrays.x.max()) < 80
