"""IDX files: MNIST, Fashion-MNIST and EMNIST, also from files that are damaged or lie."""

import gzip
import os
import shutil
import string
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from written import idx, write

from golden import raises
from isthmus.data.arrays import Source
from isthmus.data.named.mnist import Emnist, FashionMnist, Mnist
from isthmus.errors import IsthmusError

FILES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


def contents(train: int = 12, test: int = 5) -> dict[str, bytes]:
    """Makes the four files of a tiny MNIST of 3x2 images; image i is filled with the number i."""
    result = {}
    for part, count in (("train", train), ("t10k", test)):
        images = np.repeat(np.arange(count, dtype=np.uint8), 6).reshape(count, 3, 2)
        result[f"{part}-images-idx3-ubyte"] = idx(images)
        result[f"{part}-labels-idx1-ubyte"] = idx(np.arange(count, dtype=np.uint8) % 10)
    return result


def characters() -> dict[str, bytes]:
    """Makes the four files of a tiny EMNIST: image i holds 100 + i where row 0 meets column 2."""
    result = {}
    for part, count in (("train", 62), ("test", 7)):
        images = np.zeros((count, 28, 28), np.uint8)
        images[:, 2, 0] = 100 + np.arange(count)  # as the files have it: columns first
        result[f"emnist-byclass-{part}-images-idx3-ubyte"] = idx(images)
        result[f"emnist-byclass-{part}-labels-idx1-ubyte"] = idx(np.arange(count, dtype=np.uint8))
    return result


@pytest.mark.parametrize("zipped", [True, False], ids=["gz", "raw"])
@pytest.mark.parametrize(
    ("source", "folder"),
    [(Mnist(), "mnist"), (Mnist(), "."), (FashionMnist(), "fashion-mnist")],
    ids=["mnist", "mnist in the root", "fashion-mnist"],
)
def test_a_set_is_read_from_its_four_files(
    tmp_path: Path, source: Source, folder: str, zipped: bool
) -> None:
    write(tmp_path / folder, contents(), zipped=zipped)
    x, y, test_x, test_y, classes, scale, *_ = source.load(tmp_path, seed=0)
    assert (x.shape, test_x.shape) == ((12, 1, 3, 2), (5, 1, 3, 2))
    assert x[:, 0, 2, 1].tolist() == list(range(12))
    assert y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert test_y.tolist() == [0, 1, 2, 3, 4]
    assert (x.dtype, y.dtype, classes, scale) == (np.uint8, np.int64, 10, 255.0)


def test_mnist_in_the_root_is_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    write(tmp_path, contents(), zipped=True)
    with raises(IsthmusError):
        FashionMnist().load(tmp_path, seed=0)


@pytest.mark.parametrize("zipped", [True, False], ids=["gz", "raw"])
@pytest.mark.parametrize("folder", ["emnist", "emnist/gzip", "gzip", "."])
def test_emnist_is_upright_wherever_it_lies(tmp_path: Path, folder: str, zipped: bool) -> None:
    """The files exchange rows and columns: what they hold at (2, 0) belongs to row 0, column 2."""
    write(tmp_path / folder, characters(), zipped=zipped)
    arrays = Emnist().load(tmp_path, seed=0)
    assert (arrays.x.shape, arrays.test_x.shape) == ((62, 1, 28, 28), (7, 1, 28, 28))
    assert arrays.x[:, 0, 0, 2].tolist() == list(range(100, 162))
    assert arrays.x.sum() == sum(range(100, 162))
    assert arrays.test_x[:, 0, 0, 2].tolist() == list(range(100, 107))
    assert arrays.x.flags.c_contiguous
    assert (arrays.classes, arrays.y.tolist()) == (62, list(range(62)))
    assert "".join(arrays.labels) == string.digits + string.ascii_uppercase + string.ascii_lowercase


@pytest.mark.parametrize("folder", ["emnist", "."])
def test_emnist_is_read_from_its_archive_as_it_is(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    with zipfile.ZipFile(tmp_path / folder / "gzip.zip", "w") as archive:
        archive.writestr("../climbs.txt", "out")
        for name, data in characters().items():
            archive.writestr(f"gzip/{name}.gz", gzip.compress(data))
    before = sorted(tmp_path.rglob("*"))
    arrays = Emnist().load(tmp_path, seed=0)
    assert arrays.x[:, 0, 0, 2].tolist() == list(range(100, 162))
    shutil.rmtree(tmp_path / "emnist.decoded")
    assert sorted(tmp_path.rglob("*")) == before, "nothing was unpacked"
    assert not (tmp_path.parent / "climbs.txt").exists()


@pytest.mark.parametrize("damage", ["no zip at all", "no such member", "a member that is no gzip"])
def test_a_broken_archive_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "gzip.zip"
    path.write_bytes(b"PK but no more")
    if damage != "no zip at all":
        name = "gzip/emnist-byclass-train-images-idx3-ubyte.gz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name if damage.startswith("a member") else "other.txt", b"plain")
    with raises(IsthmusError):
        Emnist().load(tmp_path, seed=0)


@pytest.mark.parametrize("missing", FILES)
def test_a_missing_file_is_named_with_the_command_that_gets_it(
    tmp_path: Path, missing: str
) -> None:
    root = tmp_path / "my data"
    files = contents()
    del files[missing]
    write(root, files, zipped=True)
    with raises(IsthmusError):
        Mnist().load(root, seed=0)


@pytest.mark.parametrize("zipped", [True, False], ids=["gz", "raw"])
def test_every_truncation_is_refused(tmp_path: Path, zipped: bool) -> None:
    write(tmp_path, contents(), zipped=zipped)
    path = tmp_path / ("train-images-idx3-ubyte" + (".gz" if zipped else ""))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(IsthmusError):
            Mnist().load(tmp_path, seed=0)


def replaced(position: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + new + data[position + len(new) :]


DAMAGED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "wrong type": ("train-images-idx3-ubyte", replaced(2, b"\x0d")),
    "wrong rank": ("train-images-idx3-ubyte", replaced(3, b"\x01")),
    "too many": ("train-images-idx3-ubyte", replaced(7, b"\x0d")),
    "huge": ("train-images-idx3-ubyte", replaced(4, b"\xff" * 12)),
    "longer": ("t10k-labels-idx1-ubyte", lambda data: data + b"\0"),
    "fewer labels": ("train-labels-idx1-ubyte", lambda _: idx(np.zeros(11, np.uint8))),
    "a label of no digit": ("t10k-labels-idx1-ubyte", replaced(8, b"\x0a")),
    "another size": ("t10k-images-idx3-ubyte", lambda _: idx(np.zeros((5, 2, 2), np.uint8))),
}


@pytest.mark.parametrize("zipped", [True, False], ids=["gz", "raw"])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, name: str, zipped: bool) -> None:
    file, damage = DAMAGED[name]
    files = contents()
    files[file] = damage(files[file])
    write(tmp_path, files, zipped=zipped)
    with raises(IsthmusError):
        Mnist().load(tmp_path, seed=0)


@pytest.mark.parametrize("damage", ["no gzip at all", "a flipped bit"])
def test_a_corrupt_zipped_file_is_refused(tmp_path: Path, damage: str) -> None:
    write(tmp_path, contents(), zipped=True)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    data = bytearray(path.read_bytes())
    data[0 if damage == "no gzip at all" else len(data) - 6] ^= 1
    path.write_bytes(data)
    with raises(IsthmusError):
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
