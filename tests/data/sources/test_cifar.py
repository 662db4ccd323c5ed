"""CIFAR-10 and CIFAR-100 from their pickles and archives, also from hostile ones."""

import gzip
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written import batch, cifar10, cifar100, packed, pickled, python2

from commands import Isthmus
from golden import check, raises
from isthmus.data.arrays import Arrays
from isthmus.data.named import cifar
from isthmus.data.named.cifar import Cifar10, Cifar100
from isthmus.errors import IsthmusError

ROOT = os.environ.get("ISTHMUS_DATA_ROOT")
FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"


def members(files: dict[str, dict[str, Any]], folder: str = FOLDER) -> Any:
    return [(f"{folder}/{name}", python2(value)) for name, value in files.items()]


@pytest.fixture(params=["python 2", "python 3", "archive"])
def ten(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tiny CIFAR-10 in each of the forms that it comes in."""
    if request.param == "archive":
        packed(tmp_path / ARCHIVE, members(cifar10()))
    else:
        pickled(tmp_path / FOLDER, cifar10(), 4 if request.param == "python 3" else 0)
    return tmp_path


def test_cifar10_is_read_in_the_order_of_its_files(ten: Path) -> None:
    """Ten images in each of five files; the i-th is filled with i, in the test with 100 + i."""
    arrays = Cifar10().load(ten, seed=0)
    assert (arrays.x.shape, arrays.test_x.shape) == ((50, 3, 32, 32), (10, 3, 32, 32))
    assert arrays.x[:, 2, 31, 31].tolist() == list(range(50))
    assert arrays.test_x[:, 0, 0, 0].tolist() == list(range(100, 110))
    assert (arrays.y.tolist(), arrays.test_y.tolist()) == ([*range(10)] * 5, [*range(10)])
    assert (arrays.x.dtype, arrays.y.dtype) == (np.uint8, np.int64)
    assert (arrays.classes, arrays.scale, arrays.labels[:2]) == (10, 255.0, ("plane", "car"))


def test_rows_are_channels_then_lines(tmp_path: Path) -> None:
    """A row of the file is 1024 red, 1024 green and 1024 blue bytes, each line by line."""
    files = cifar10(1)
    files["test_batch"]["data"] = (np.arange(3072) % 251).astype(np.uint8)[None]
    pickled(tmp_path / FOLDER, files)
    image = Cifar10().load(tmp_path, seed=0).test_x[0]
    assert image[1, 2, 3] == (1024 + 2 * 32 + 3) % 251


def test_normalisation_is_floco_s_and_can_be_left_out(tmp_path: Path) -> None:
    pickled(tmp_path / FOLDER, cifar10())
    normal, plain = (Cifar10(normalise=b).load(tmp_path, seed=0) for b in (True, False))
    assert normal.mean == (0.4914, 0.4822, 0.4465)
    assert normal.std == (0.2023, 0.1994, 0.2010)
    assert (plain.mean, plain.std) == ((), ())
    assert np.array_equal(normal.x, plain.x)


def test_resizing_is_pillow_s_as_in_the_superfed_code(tmp_path: Path) -> None:
    """Both are bilinear over the whole support, in fixed point: they may round one level apart."""
    from PIL import Image

    files = cifar10(3)
    pixels = np.random.default_rng(1).integers(0, 256, (3, 3072)).astype(np.uint8)
    files["test_batch"]["data"] = pixels
    pickled(tmp_path / FOLDER, files)
    found = Cifar10(size=28).load(tmp_path, seed=0)
    assert (found.x.shape, found.test_x.shape) == ((15, 3, 28, 28), (3, 3, 28, 28))
    assert found.x.dtype == np.uint8
    for image, given in zip(found.test_x, pixels, strict=True):
        whole = Image.fromarray(given.reshape(3, 32, 32).transpose(1, 2, 0))
        small = np.asarray(whole.resize((28, 28), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        assert np.abs(image.astype(int) - small).max() <= 1


@pytest.mark.parametrize(("kind", "classes"), [("fine", 100), ("coarse", 20)])
@pytest.mark.parametrize("archive", [False, True], ids=["folder", "archive"])
def test_cifar100_has_fine_and_coarse_labels(
    tmp_path: Path, kind: Any, classes: int, archive: bool
) -> None:
    """Of 100 images the i-th is of the fine class i and, five by five, of the coarse one i // 5."""
    if archive:
        packed(tmp_path / "cifar-100-python.tar.gz", members(cifar100(), "cifar-100-python"))
    else:
        pickled(tmp_path / "cifar-100-python", cifar100())
    arrays = Cifar100(labels=kind).load(tmp_path, seed=0)
    assert arrays.y.tolist() == [i * classes // 100 for i in range(100)]
    assert (arrays.classes, len(arrays.labels), arrays.labels[1]) == (classes, classes, f"{kind} 1")
    assert arrays.mean == (0.5071, 0.4866, 0.4409)


def refused(root: Path) -> None:
    with raises(IsthmusError):
        Cifar10().load(root, seed=0)


def test_what_is_missing_is_named_with_the_command_that_gets_it(tmp_path: Path) -> None:
    refused(tmp_path)
    files = cifar10()
    del files["data_batch_3"]
    packed(tmp_path / ARCHIVE, members(files))
    refused(tmp_path)
    pickled(tmp_path / FOLDER, files)
    refused(tmp_path)


DAMAGED: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "no data": ("test_batch", lambda b: b.pop("data")),
    "a list": ("test_batch", lambda b: b.update(data=[1, 2])),
    "narrow": ("test_batch", lambda b: b.update(data=b["data"][:, :784].copy())),
    "no labels": ("data_batch_1", lambda b: b.pop("labels")),
    "fewer labels": ("data_batch_1", lambda b: b["labels"].pop()),
    "label 10": ("data_batch_1", lambda b: b.update(labels=[10] * 10)),
    "label -1": ("data_batch_1", lambda b: b.update(labels=[-1] * 10)),
    "half a label": ("data_batch_1", lambda b: b.update(labels=[0.5] * 10)),
    "fewer names": ("batches.meta", lambda b: b["label_names"].pop()),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_of_other_things_is_refused(tmp_path: Path, name: str) -> None:
    file, damage = DAMAGED[name]
    files = cifar10()
    damage(files[file])
    pickled(tmp_path / FOLDER, files)
    refused(tmp_path)


class Calls:
    """Is pickled as a call: what a hostile file is made of."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


DANGEROUS: dict[str, Any] = {
    "system": Calls(os.system, "touch it-ran"),
    "eval": Calls(eval, "open('it-ran', 'w')"),
    "getattr": Calls(getattr, "", "join"),
    "numpy.memmap": Calls(np.memmap, "it-ran", "u1", "w+", 0, (4,)),
    "numpy.save": Calls(np.save, "it-ran", 1),
    "an array of objects": np.array([{}], object),
    "an array of words": np.array(["a"]),
}


@pytest.mark.parametrize("archive", [False, True], ids=["folder", "archive"])
@pytest.mark.parametrize("name", DANGEROUS)
def test_a_hostile_pickle_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, archive: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = pickle.dumps(batch() | {"data": DANGEROUS[name]}, 4)
    if archive:
        files = [*members(cifar10())[:2], (f"{FOLDER}/data_batch_3", hostile)]
        packed(tmp_path / ARCHIVE, files)
    else:
        (pickled(tmp_path / FOLDER, cifar10()) / "data_batch_3").write_bytes(hostile)
    refused(tmp_path)
    assert not Path("it-ran").exists()


def test_every_truncation_is_refused() -> None:
    """The array has 3 x 4 bytes, so that cuts fall into every kind of instruction."""
    table = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "n": [1, 2]}
    for whole in (python2(table), pickle.dumps(table, 4)):
        assert cifar.read_table(whole, "batch")["data"].tolist() == table["data"].tolist()
        for length in range(len(whole)):
            with raises(IsthmusError):
                cifar.read_table(whole[:length], "batch")


def test_members_that_climb_out_do_no_harm(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    outside = [
        ("../climbed", b"out"),
        (f"../{FOLDER}/data_batch_1", b"no pickle"),
        (str(tmp_path / "absolute"), b"out"),
    ]
    packed(root / ARCHIVE, outside + members(cifar10()))
    assert len(Cifar10().load(root, seed=0).y) == 50
    shutil.rmtree(root / f"{FOLDER}.decoded")
    assert sorted(tmp_path.rglob("*")) == [root, root / ARCHIVE], "nothing was written"


@pytest.mark.parametrize("damage", ["no gzip", "no tar", "cut short", "a flipped bit", "nothing"])
def test_a_broken_archive_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / ARCHIVE
    packed(path, members(cifar10()))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(
        {
            "no gzip": b"<html>not found</html>",
            "no tar": gzip.compress(b"text " * 1000),
            "cut short": bytes(data[: len(data) // 3]),
            "a flipped bit": bytes(data),
            "nothing": b"",
        }[damage]
    )
    refused(tmp_path)


def test_options_are_checked_where_an_experiment_is_loaded(isthmus: Isthmus) -> None:
    check(isthmus("run", "--data", "cifar10", "--set", "size=30").mistake)
    check(isthmus("run", "--data", "cifar100", "--set", "data.labels=super").mistake)


def test_a_run_says_what_is_missing_in_one_line(isthmus: Isthmus) -> None:
    check(isthmus("run", "--data", "cifar100", "--data-root", "here").mistake)


def real(folder: str) -> Path:
    if not ROOT or not (Path(ROOT) / folder).is_dir():
        pytest.skip(f"ISTHMUS_DATA_ROOT names no folder with {folder}")
    return Path(ROOT)


def statistics(arrays: Arrays) -> tuple[list[float], list[float]]:
    """Mean and deviation of each channel, from counts of the 256 levels."""
    level = np.arange(256) / 255
    counts = np.stack([np.bincount(arrays.x[:, c].ravel(), minlength=256) for c in range(3)])
    shares = counts / counts.sum(1, keepdims=True)
    mean = shares @ level
    return mean.tolist(), np.sqrt(shares @ level**2 - mean**2).tolist()


def test_the_real_cifar10_has_its_published_counts_and_means() -> None:
    """The means are those in every code, to their four digits; the deviations over all pixels are
    .2470 .2435 .2616, not the .2023 .1994 .2010 that FLOCO and many others divide by."""
    arrays = Cifar10().load(real(FOLDER), seed=0)
    assert (arrays.x.shape, arrays.test_x.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert np.bincount(arrays.y).tolist() == [5000] * 10
    assert np.bincount(arrays.test_y).tolist() == [1000] * 10
    mean, std = statistics(arrays)
    assert mean == pytest.approx(arrays.mean, abs=1e-4)
    assert std == pytest.approx((0.2470, 0.2435, 0.2616), abs=1e-4)
    assert arrays.labels[3] == "cat"


def test_the_real_cifar100_has_its_published_counts_and_means() -> None:
    """Mean and deviation are those that are divided by, to their four digits."""
    root = real("cifar-100-python")
    arrays = Cifar100().load(root, seed=0)
    assert (arrays.x.shape, arrays.test_x.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert np.bincount(arrays.y).tolist() == [500] * 100
    assert np.bincount(arrays.test_y).tolist() == [100] * 100
    mean, std = statistics(arrays)
    assert mean == pytest.approx(arrays.mean, abs=1e-4)
    assert std == pytest.approx(arrays.std, abs=1e-4)
    coarse = Cifar100(labels="coarse").load(root, seed=0)
    assert np.bincount(coarse.y).tolist() == [2500] * 20


SMALL = [
    *("--rounds", "1", "--method", "fedavg", "--set", "clients=20", "--set", "clients_per_round=2"),
    *("--set", "epochs=1", "--set", "model=mlp", "--set", "hidden=8", "--set", "lr=0.001"),
]


@pytest.mark.parametrize(
    ("data", "folder"), [("cifar10", FOLDER), ("cifar100", "cifar-100-python")]
)
def test_a_run_trains_on_the_real_files(isthmus: Isthmus, data: str, folder: str) -> None:
    root = real(folder)
    said = isthmus("run", "--data", data, "--data-root", root, *SMALL, "--set", "size=28")
    assert said.code == 0, said.err
    assert said.digest
