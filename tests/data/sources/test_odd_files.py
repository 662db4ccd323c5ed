"""Data that nobody can train on: what is no file where one belongs, and numbers of odd kinds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written import cifar10, idx, photo, pickled, tiny_imagenet, write

from commands import Isthmus
from golden import check
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.data.arrays import Source
from isthmus.data.named.cifar import Cifar10
from isthmus.data.named.femnist import Femnist
from isthmus.data.named.mnist import Mnist
from isthmus.data.named.shakespeare import Shakespeare
from isthmus.data.named.tinyimagenet import TinyImageNet
from isthmus.data.own.arrays import Files
from isthmus.data.own.folders import Folders
from isthmus.data.own.newcomer_files import read_newcomers
from isthmus.data.own.tables import Table

X, Y = np.arange(60, dtype=np.float32).reshape(20, 3), np.arange(20) % 2
ROLE = {"users": ["a"], "user_data": {"a": {"x": [], "y": []}}}


def refused(read: Callable[[], Any]) -> str:
    with pytest.raises(IsthmusError) as error:
        read()
    assert "\n" not in str(error.value)
    return str(error.value)


def digits(root: Path, shape: tuple[int, ...] = (20, 3, 2)) -> None:
    images, labels = np.zeros(shape, np.uint8), np.arange(shape[0], dtype=np.uint8) % 10
    for part in ("train", "t10k"):
        files = {f"{part}-images-idx3-ubyte": idx(images), f"{part}-labels-idx1-ubyte": idx(labels)}
        write(root / "mnist", files, zipped=True)


def leaf(root: Path) -> None:
    (root / "shakespeare/data/all_data").mkdir(parents=True)


def femnist(root: Path) -> None:
    (root / "femnist").mkdir()


# what makes the files, what reads them, and the file that is something else
PLACES: dict[str, tuple[Callable[[Path], object], Source, str]] = {
    "table": (lambda root: None, Table("a.csv"), "a.csv"),
    "parquet": (lambda root: None, Table("a.parquet"), "a.parquet"),
    "arrays": (lambda root: (root / "own").mkdir(), Files("own"), "own/a.npz"),
    "tensors": (lambda root: (root / "own").mkdir(), Files("own"), "own/a.safetensors"),
    "images": (lambda root: photo(root / "own/a/cat/1.png"), Folders("own"), "own/a/cat/2.png"),
    "mnist": (digits, Mnist(), "mnist/train-images-idx3-ubyte.gz"),
    "cifar": (
        lambda root: pickled(root / "cifar-10-batches-py", cifar10()),
        Cifar10(),
        "cifar-10-batches-py/test_batch",
    ),
    "leaf": (leaf, Shakespeare(), "shakespeare/data/all_data/all.json"),
    "packed leaf": (leaf, Shakespeare(), "shakespeare/data/all_data/all.json.gz"),
    "femnist": (femnist, Femnist(), "femnist/femnist.npz"),
    "photograph": (
        tiny_imagenet,
        TinyImageNet(),
        "tiny-imagenet-200/train/n00000001/images/n00000001_0.JPEG",
    ),
    "annotations": (tiny_imagenet, TinyImageNet(), "tiny-imagenet-200/val/val_annotations.txt"),
}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, place: str, kind: str) -> None:
    pytest.importorskip("PIL")
    if place == "parquet":
        pytest.importorskip("pyarrow")
    make, source, name = PLACES[place]
    make(tmp_path)
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert path.stem.removesuffix(".json") in refused(lambda: source.load(tmp_path, seed=0))


@pytest.mark.parametrize("place", ["/dev/zero", "/proc", "/proc/self/fd", "a" * 300, "/"])
def test_places_without_data_are_one_line(isthmus: Isthmus, place: str) -> None:
    assert isthmus("data", "show", "--data", place).mistake
    assert isthmus("run", "--data", place, "--out", "out").mistake


KINDS: dict[str, dict[str, Any]] = {
    "longdouble": {"x": X.astype("g")},
    "spans of time": {"x": X.astype("m8[s]")},
    "times": {"x": X.astype("M8[s]")},
    "bytes": {"x": X.astype("S4").view("V4")},
    "labels that are spans of time": {"y": Y.astype("m8[s]")},
    "labels that are bytes": {"y": Y.astype("S4").view("V4")},
    "clients that are bytes": {"client": Y.astype("S4").view("V4")},
    "a split of complex numbers": {"split": Y * 1j},
    "no width": {"x": X[:, :0]},
    "too large": {"x": X.astype("f8") * 1e300},
    "infinite": {"x": np.where(X > 3, np.inf, X)},
    "all test": {"split": np.full(20, "test")},
}


@pytest.mark.parametrize("name", KINDS)
def test_arrays_of_odd_kinds_are_refused(tmp_path: Path, name: str) -> None:
    arrays = {"x": X, "y": Y, "client": Y} | KINDS[name]
    np.savez(tmp_path / "a.npz", **arrays)
    check(refused(lambda: Files(str(tmp_path / "a.npz")).load(tmp_path, seed=0)))
    split = arrays.get("split")
    check(refused(lambda: Federation.of(arrays["x"], arrays["y"], arrays["client"], split=split)))


@pytest.mark.parametrize("kind", [">f4", ">f8", ">i4", "f2", "u2", "u4", "u8", "i1"])
def test_numbers_of_every_width_and_order_of_bytes_are_the_same(kind: str) -> None:
    plain = Federation.of(X, Y, Y).split(0, "train")
    other = Federation.of(X.astype(kind), Y.astype(">i2"), Y).split(0, "train")
    assert other.x.tolist() == plain.x.tolist()
    assert other.y.tolist() == plain.y.tolist()


def test_what_a_scale_makes_infinite_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X.astype(int), y=Y, client=Y)
    check(refused(lambda: Files(str(tmp_path / "a.npz"), scale=1e-300).load(tmp_path, seed=0)))


def test_newcomers_beyond_the_numbers_are_refused(tmp_path: Path) -> None:
    run = Federation.of(X, Y, Y)
    np.savez(tmp_path / "a.npz", x=X.astype("f8") * 1e300, y=Y)
    check(refused(lambda: read_newcomers(tmp_path / "a.npz", run)))


def test_one_class_is_no_data(isthmus: Isthmus) -> None:
    np.savez("a.npz", x=X, y=Y * 0 + 3, client=Y)
    check(isthmus("data", "show", "--data", "a.npz").mistake)
    data, experiment = Federation.of(X, Y * 0, Y), Experiment(clients_per_round=1)
    check(refused(lambda: federate(experiment, data=data)))


@pytest.mark.parametrize("shape", [(0, 3, 2), (20, 0, 2)])
def test_files_of_nothing_are_no_data(isthmus: Isthmus, shape: tuple[int, ...]) -> None:
    digits(Path("data"), shape)
    check(isthmus("data", "show", "--data", "mnist", "--set", "clients=9").mistake)


def test_newcomers_may_have_one_class(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y * 0)
    assert len(read_newcomers(tmp_path / "a.npz", Federation.of(X, Y, Y))) == 1


def test_a_table_of_test_rows_says_so(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 2},a,test\n" for i in range(20))
    (tmp_path / "a.csv").write_text(f"age,label,client,part\n{rows}")
    check(refused(lambda: Table(str(tmp_path / "a.csv"), split="part").load(tmp_path, seed=0)))


PACKED: dict[str, Any] = {
    "x": np.zeros((4, 28, 28), np.uint8),
    "y": np.arange(4),
    "names": np.array(["a", "b"]),
}


def test_owners_may_be_whole_numbers_of_any_kind(tmp_path: Path) -> None:
    femnist(tmp_path)
    for kind in ("u8", "u1", ">i4"):
        owner = np.array([0, 1, 1, 0], kind)
        np.savez(tmp_path / "femnist/femnist.npz", owner=owner, **PACKED)
        assert Femnist().load(tmp_path, seed=0).y.tolist() == [0, 3, 1, 2]
