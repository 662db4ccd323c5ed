"""What is kept of MNIST and CIFAR once they are read, and when it is read again."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from written import cifar10 as ten
from written import cifar100 as hundred
from written import idx as as_idx
from written import pickled, write

from golden import raises
from isthmus.data.arrays import Arrays, Source
from isthmus.data.federation import Federation
from isthmus.data.named import cache, cifar
from isthmus.data.named.cifar import Cifar10, Cifar100
from isthmus.data.named.mnist import Mnist
from isthmus.errors import IsthmusError


def mnist(root: Path, first: int = 0) -> None:
    """Writes a tiny MNIST of 3x2 images; image i is filled with first + i."""
    files = {}
    for part, count in (("train", 20), ("t10k", 5)):
        images = np.repeat(np.arange(first, first + count, dtype=np.uint8), 6).reshape(count, 3, 2)
        files[f"{part}-images-idx3-ubyte"] = as_idx(images)
        files[f"{part}-labels-idx1-ubyte"] = as_idx(np.arange(count, dtype=np.uint8) % 10)
    write(root / "mnist", files, zipped=True)


SETS: dict[str, tuple[Callable[[Path], object], Source, str]] = {
    "mnist": (mnist, Mnist(), "mnist.decoded"),
    "cifar10": (
        lambda root: pickled(root / "cifar-10-batches-py", ten()),
        Cifar10(),
        "cifar-10-batches-py.decoded",
    ),
    "cifar100": (
        lambda root: pickled(root / "cifar-100-python", hundred()),
        Cifar100(labels="coarse", size=28),
        "cifar-100-python.decoded",
    ),
}


def same(first: Arrays, second: Arrays) -> bool:
    arrays = all(np.array_equal(a, b) for a, b in zip(first[:4], second[:4], strict=True))
    return arrays and first[4:] == second[4:]


def everything(arrays: Arrays) -> Federation:
    return Federation.from_owners(arrays, test=0.2, validation=0.1, seed=1)


def forbidden(*_: object) -> None:
    raise AssertionError("the files were read again")


@pytest.mark.parametrize("name", SETS)
def test_files_are_read_once_and_mapped_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Against what they give where nothing may be kept; labels are small and are not mapped."""
    make, source, folder = SETS[name]
    make(tmp_path)
    (tmp_path / folder).write_text("in the way")
    plain = source.load(tmp_path, seed=0)
    (tmp_path / folder).unlink()
    assert not isinstance(plain.x, np.memmap)
    first = source.load(tmp_path, seed=0)
    monkeypatch.setattr("isthmus.data.named.mnist.read_idx", forbidden)
    monkeypatch.setattr("isthmus.data.named.cifar.read_table", forbidden)
    second = source.load(tmp_path, seed=0)
    for found in (first, second):
        assert same(found, plain)
        assert isinstance(found.x, np.memmap)
        assert isinstance(found.test_x, np.memmap)
        assert not isinstance(found.y, np.memmap)
        assert everything(found).digest() == everything(plain).digest()


def test_what_is_mapped_becomes_tensors_without_a_warning(tmp_path: Path) -> None:
    """Torch warns of arrays that may not be written: rows are copied before it sees them."""
    mnist(tmp_path)
    federation = everything(Mnist().load(tmp_path, seed=0))
    assert not federation.arrays.x.flags.writeable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federation.split(0, "train").x.zero_()
        federation.server_test().x.zero_()
    assert federation.split(0, "train").x.max() > 0


@pytest.mark.parametrize("change", ["other images", "a later time", "another form"])
def test_files_that_changed_are_read_again(tmp_path: Path, change: str) -> None:
    mnist(tmp_path)
    Mnist().load(tmp_path, seed=0)
    folder, path = tmp_path / "mnist.decoded", tmp_path / "mnist/train-images-idx3-ubyte.gz"
    before = set(folder.iterdir())
    if change == "other images":
        mnist(tmp_path, first=100)
    elif change == "another form":
        images = np.full((20, 3, 2), 7, np.uint8)
        path.unlink()
        path.with_suffix("").write_bytes(as_idx(images))
    if change != "another form":
        os.utime(path, ns=(1, 1))
    arrays = Mnist().load(tmp_path, seed=0)
    first = {"other images": 100, "a later time": 0, "another form": 7}[change]
    assert arrays.x[0, 0, 0, 0] == first
    after = set(folder.iterdir())
    assert len(after) == len(before) == len(cache.FileExamples._fields), "the old arrays went"
    assert not before & after


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "no array": lambda path: path.write_bytes(b"text"),
    "objects": lambda path: np.save(path, np.array([{}], dtype=object), allow_pickle=True),
}


@pytest.mark.parametrize("field", ["x", "test_y"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_array_is_made_again(tmp_path: Path, damage: str, field: str) -> None:
    mnist(tmp_path)
    folder = tmp_path / "mnist.decoded"
    first = everything(Mnist().load(tmp_path, seed=0)).digest()
    (path,) = folder.glob(f"{field}-*.npy")
    whole = path.read_bytes()
    DAMAGES[damage](path)
    assert everything(Mnist().load(tmp_path, seed=0)).digest() == first
    assert path.read_bytes() == whole


def test_drafts_that_killed_processes_left_are_removed(tmp_path: Path) -> None:
    mnist(tmp_path)
    Mnist().load(tmp_path, seed=0)
    there = sorted((tmp_path / "mnist.decoded").iterdir())
    (tmp_path / "mnist.decoded/x-mnist-0123456789abcdef.npy.89abcdef.part").write_bytes(b"half")
    Mnist().load(tmp_path, seed=0)
    assert sorted((tmp_path / "mnist.decoded").iterdir()) == there


@pytest.mark.parametrize("trouble", ["read only", "no room"])
def test_where_nothing_can_be_written_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Whoever runs this may be allowed to write anywhere, so that the system's answer is played."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(30 if trouble == "read only" else 28, trouble)

    mnist(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "mkdir") if trouble == "read only" else (os, "fsync")), refused)
        arrays = Mnist().load(tmp_path, seed=0)
    assert not isinstance(arrays.x, np.memmap)
    assert arrays.x[:, 0, 0, 0].tolist() == list(range(20))
    assert not list(tmp_path.glob("mnist.decoded/*"))


def test_a_process_that_is_stopped_leaves_no_half_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mnist(tmp_path)

    def stopped(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stopped)
        with pytest.raises(KeyboardInterrupt):
            Mnist().load(tmp_path, seed=0)
    assert not list(tmp_path.glob("mnist.decoded/*"))
    assert len(Mnist().load(tmp_path, seed=0).y) == 20


def test_sizes_and_kinds_of_labels_are_kept_apart(tmp_path: Path) -> None:
    pickled(tmp_path / "cifar-100-python", hundred())
    for _ in range(2):
        for labels, size, classes in (("fine", 32, 100), ("coarse", 32, 20), ("fine", 28, 100)):
            source = Cifar100(labels=labels, size=size)  # type: ignore[arg-type]
            arrays = source.load(tmp_path, seed=0)
            assert (arrays.x.shape[2:], arrays.classes) == ((size, size), classes)
            assert len(arrays.labels) == classes
    fields = len(cache.FileExamples._fields)
    assert len(list((tmp_path / "cifar-100-python.decoded").iterdir())) == 3 * fields


def test_without_its_files_what_is_kept_is_not_used(tmp_path: Path) -> None:
    pickled(tmp_path / cifar.CIFAR10_FILES.folder, ten())
    Cifar10().load(tmp_path, seed=0)
    (tmp_path / cifar.CIFAR10_FILES.folder / "test_batch").unlink()
    with raises(IsthmusError):
        Cifar10().load(tmp_path, seed=0)
