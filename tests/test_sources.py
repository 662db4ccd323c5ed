"""Data sets: the bundled one, the drawn one, and MNIST from files that may be damaged."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from isthmus.data.sources.digits import Digits
from isthmus.data.sources.mnist import Mnist
from isthmus.data.sources.synthetic import Synthetic
from isthmus.errors import IsthmusError

NOWHERE = Path("nowhere")
FILES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


def test_digits_are_the_1797_of_the_repository() -> None:
    """Every sixth image from the first on: ceil(1797 / 6) = 300 for the server, 1497 for clients.

    The file begins 0 1 2 3 4 5 6 7 8 9 0 1 2, so that the server has 0, 6 and 2 first. The counts
    per class are those of the 1998 donation's test set.
    """
    x, y, test_x, test_y, classes, scale, *_ = Digits().load(NOWHERE, seed=0)
    assert (x.shape, test_x.shape) == ((1497, 1, 8, 8), (300, 1, 8, 8))
    assert (len(y), len(test_y), classes) == (1497, 300, 10)
    assert (y[:6].tolist(), test_y[:3].tolist()) == ([1, 2, 3, 4, 5, 7], [0, 6, 2])
    counts = np.bincount(np.concatenate([y, test_y]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.issubdtype(x.dtype, np.integer)
    assert (int(x.min()), int(x.max()), scale) == (0, 16, 16.0)


def test_digits_do_not_depend_on_the_seed() -> None:
    first, second = Digits().load(NOWHERE, seed=0), Digits().load(NOWHERE, seed=1)
    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.test_y, second.test_y)


def test_a_synthetic_set_has_the_size_asked_for() -> None:
    """A fifth as many for the server: 103 // 5 = 20."""
    x, y, test_x, test_y, classes, *_ = Synthetic(samples=103, features=4, classes=3).load(
        NOWHERE, 5
    )
    assert (x.shape, y.shape, test_x.shape, test_y.shape) == ((103, 4), (103,), (20, 4), (20,))
    assert x.dtype == np.float32
    assert y.dtype == np.int64
    assert classes == 3
    assert set(y) == set(test_y) == {0, 1, 2}


def test_a_seed_decides_the_synthetic_set() -> None:
    one, same, other = (Synthetic().load(NOWHERE, seed) for seed in (5, 5, 6))
    assert np.array_equal(one.x, same.x)
    assert not np.array_equal(one.x, other.x)


def test_a_class_is_one_cloud_of_the_asked_for_spread() -> None:
    """The deviation of some 400 x 50 normal numbers is off by 1 / sqrt(2 * 20,000) = 0.5 %; six
    times that is 3 %. Centres are 10 or so apart in 50 dimensions, clouds of 0.01 are not."""
    x, y, test_x, test_y, *_ = Synthetic(samples=2000, features=50, classes=5, spread=0.01).load(
        NOWHERE, seed=1
    )
    for label in range(5):
        centre = x[y == label].mean(0)
        assert (x[y == label] - centre).std() == pytest.approx(0.01, rel=0.03)
        assert np.linalg.norm(test_x[test_y == label] - centre, axis=1).max() < 0.2
        assert np.linalg.norm(x[y != label] - centre, axis=1).min() > 2


def idx(array: NDArray[np.uint8]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def contents(train: int = 12, test: int = 5) -> dict[str, bytes]:
    """Makes the four files of a tiny MNIST of 3x2 images; image i is filled with the number i."""
    result = {}
    for part, count in (("train", train), ("t10k", test)):
        images = np.repeat(np.arange(count, dtype=np.uint8), 6).reshape(count, 3, 2)
        result[f"{part}-images-idx3-ubyte"] = idx(images)
        result[f"{part}-labels-idx1-ubyte"] = idx(np.arange(count, dtype=np.uint8) % 10)
    return result


def write(folder: Path, files: dict[str, bytes], *, zipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(data) if zipped else data)


@pytest.mark.parametrize("zipped", [True, False], ids=["gz", "raw"])
@pytest.mark.parametrize("folder", ["mnist", "."])
def test_mnist_is_read_from_its_four_files(tmp_path: Path, folder: str, zipped: bool) -> None:
    write(tmp_path / folder, contents(), zipped=zipped)
    x, y, test_x, test_y, classes, scale, *_ = Mnist().load(tmp_path, seed=0)
    assert (x.shape, test_x.shape) == ((12, 1, 3, 2), (5, 1, 3, 2))
    assert x[:, 0, 2, 1].tolist() == list(range(12))
    assert y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert test_y.tolist() == [0, 1, 2, 3, 4]
    assert (x.dtype, y.dtype, classes, scale) == (np.uint8, np.int64, 10, 255.0)


@pytest.mark.parametrize("missing", FILES)
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    files = contents()
    del files[missing]
    write(tmp_path, files, zipped=True)
    with pytest.raises(IsthmusError, match=rf"no {missing}\.gz in .*--data-root"):
        Mnist().load(tmp_path, seed=0)


def test_every_truncation_of_a_zipped_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, contents(), zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(IsthmusError, match="train-images"):
            Mnist().load(tmp_path, seed=0)


def test_every_truncation_of_a_plain_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, contents(), zipped=False)
    path = tmp_path / "t10k-labels-idx1-ubyte"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(IsthmusError, match="t10k-labels"):
            Mnist().load(tmp_path, seed=0)


def replaced(position: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + new + data[position + len(new) :]


DAMAGED: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "wrong type": ("train-images-idx3-ubyte", replaced(2, b"\x0d"), "begins with 00000d03"),
    "wrong rank": ("train-images-idx3-ubyte", replaced(3, b"\x01"), "begins with 00000801"),
    "too many": ("train-images-idx3-ubyte", replaced(7, b"\x0d"), "its header says 13 x 3 x 2"),
    "huge": ("train-images-idx3-ubyte", replaced(4, b"\xff" * 12), "header says 4294967295 x"),
    "longer": ("t10k-labels-idx1-ubyte", lambda data: data + b"\0", "holds 6 bytes after"),
    "fewer labels": (
        "train-labels-idx1-ubyte",
        lambda _: idx(np.zeros(11, np.uint8)),
        "train files hold 12 images and 11 labels",
    ),
    "a label of no digit": ("t10k-labels-idx1-ubyte", replaced(8, b"\x0a"), "hold the label 10"),
    "another size": (
        "t10k-images-idx3-ubyte",
        lambda _: idx(np.zeros((5, 2, 2), np.uint8)),
        r"\(3, 2\) and its test images \(2, 2\)",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, name: str) -> None:
    file, damage, message = DAMAGED[name]
    files = contents()
    files[file] = damage(files[file])
    write(tmp_path, files, zipped=False)
    with pytest.raises(IsthmusError, match=message) as error:
        Mnist().load(tmp_path, seed=0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["no gzip at all", "a flipped bit"])
def test_a_corrupt_zipped_file_is_refused(tmp_path: Path, damage: str) -> None:
    write(tmp_path, contents(), zipped=True)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    data = bytearray(path.read_bytes())
    data[0 if damage == "no gzip at all" else len(data) - 6] ^= 1
    path.write_bytes(data)
    with pytest.raises(IsthmusError, match=r"train-labels.* cannot be read .*get the file again"):
        Mnist().load(tmp_path, seed=0)


def test_the_real_mnist_has_its_published_counts() -> None:
    """60,000 and 10,000 images; the counts per class are those of the original files."""
    root = os.environ.get("ISTHMUS_DATA_ROOT")
    if not root or not (Path(root) / "mnist").is_dir():
        pytest.skip("ISTHMUS_DATA_ROOT names no folder with MNIST")
    x, y, test_x, test_y, *_ = Mnist().load(Path(root), seed=0)
    assert (x.shape, test_x.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(y).tolist() == counts
    held = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(test_y).tolist() == held
