"""TinyImageNet and folders of photographs: decoding, what is kept of it, files that are broken."""

import os
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from written import WNIDS, folders, photo, tiny_imagenet

from commands import Isthmus
from golden import check, raises
from isthmus.data import progress
from isthmus.data.named import photographs
from isthmus.data.named.imagenet import ImageNet
from isthmus.data.named.tinyimagenet import TinyImageNet
from isthmus.errors import IsthmusError

ROOT = os.environ.get("ISTHMUS_DATA_ROOT")


def kept(root: Path, tree: str = "tiny-imagenet-200") -> list[Path]:
    return sorted((root / f"{tree}.decoded").iterdir())


def test_a_tree_with_three_classes_gives_three(tmp_path: Path) -> None:
    """Classes in the order of wnids.txt, whose fourth is not there; a JPEG of one colour is off by
    a level or two; the validation images are grey."""
    tiny_imagenet(tmp_path)
    arrays = TinyImageNet().load(tmp_path, seed=0)
    assert (arrays.x.shape, arrays.test_x.shape) == ((12, 3, 64, 64), (6, 3, 64, 64))
    assert (arrays.y.tolist(), arrays.test_y.tolist()) == (
        [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
        [0, 0, 1, 1, 2, 2],
    )
    assert arrays.x[:, 0].mean((1, 2)) == pytest.approx(60 * arrays.y, abs=3)
    assert arrays.x[:, 1].mean((1, 2)) == pytest.approx([0, 10, 20, 30] * 3, abs=3)
    for channel in range(3):
        assert arrays.test_x[:, channel].mean((1, 2)) == pytest.approx(60 * arrays.test_y, abs=3)
    assert arrays.labels == ("cat, tabby", "goldfish", WNIDS[2])
    check(*arrays.notes)
    assert (arrays.classes, arrays.scale) == (3, 255.0)


def test_normalisation_is_imagenet_s_and_can_be_left_out(tmp_path: Path) -> None:
    tiny_imagenet(tmp_path, train=1, val=1)
    normal, plain = (TinyImageNet(normalise=b).load(tmp_path, seed=0) for b in (True, False))
    assert (normal.mean, normal.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (plain.mean, plain.std) == ((), ())


def test_a_tree_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_imagenet(tmp_path)
    first = TinyImageNet().load(tmp_path, seed=0)
    files = kept(tmp_path)
    assert [path.suffix for path in files] == [".npy", ".npy"]
    monkeypatch.setattr(photographs, "decode_image", None)
    second = TinyImageNet().load(tmp_path, seed=0)
    assert isinstance(second.x, np.memmap)
    assert np.array_equal(first.x, second.x)
    assert np.array_equal(first.test_x, second.test_x)
    assert kept(tmp_path) == files


CHANGES: dict[str, Callable[[Path], object]] = {
    "another image": lambda path: photo(path, colour=(0, 255, 0)),
    "a later time": lambda path: os.utime(path, ns=(1, 1)),
    "another name": lambda path: path.rename(path.with_name("z.JPEG")),
    "one image less": lambda path: path.unlink(),
    "one image more": lambda path: photo(path.with_name("more.JPEG")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_tree_that_changed_is_decoded_again(tmp_path: Path, name: str) -> None:
    tree = tiny_imagenet(tmp_path)
    TinyImageNet().load(tmp_path, seed=0)
    train, val = kept(tmp_path)
    CHANGES[name](tree / f"train/{WNIDS[0]}/images/{WNIDS[0]}_2.JPEG")
    arrays = TinyImageNet().load(tmp_path, seed=0)
    after = kept(tmp_path)
    assert len(after) == 2, "the old array went"
    assert train not in after
    assert val in after
    expected = {"one image less": 11, "one image more": 13}.get(name, 12)
    assert len(arrays.x) == len(arrays.y) == expected
    if name == "another image":
        assert arrays.x[2].mean((1, 2)) == pytest.approx([0, 255, 0], abs=3)


def png_that_claims(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header claims any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[: len(data) // 2],
    "a head only": lambda data: data[:30],
    "empty": lambda _: b"",
    "text": lambda _: b"<html>not found</html>",
    "another format": lambda _: b"GIF89a" + bytes(50),
    "a bomb": lambda _: png_that_claims(30_000, 30_000),
    "no pixels": lambda _: png_that_claims(64, 64),
}


@pytest.mark.parametrize("source", ["tinyimagenet", "imagenet"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_is_named_in_one_line(tmp_path: Path, name: str, source: str) -> None:
    damage = BROKEN[name]
    if source == "tinyimagenet":
        path = tiny_imagenet(tmp_path) / f"train/{WNIDS[1]}/images/{WNIDS[1]}_1.JPEG"
    else:
        folders(tmp_path / "imagenet")
        path = tmp_path / "imagenet/val/dog/1.png"
    path.write_bytes(damage(path.read_bytes()))
    with raises(IsthmusError):
        (TinyImageNet if source == "tinyimagenet" else ImageNet)().load(tmp_path, seed=0)
    assert not list(tmp_path.rglob("*.part"))


def test_an_image_of_another_size_is_not_tiny_imagenet_s(tmp_path: Path) -> None:
    tree = tiny_imagenet(tmp_path)
    photo(tree / "val/images/val_0.JPEG", size=(64, 32))
    with raises(IsthmusError):
        TinyImageNet().load(tmp_path, seed=0)


ABSENT = ["wnids.txt", "words.txt", "val/val_annotations.txt", "train"]


@pytest.mark.parametrize("what", ABSENT)
def test_what_a_tree_lacks_is_named_with_the_command_that_gets_it(
    tmp_path: Path, what: str
) -> None:
    tree = tiny_imagenet(tmp_path)
    (tree / what).rename(tmp_path / "elsewhere")
    with raises(IsthmusError):
        TinyImageNet().load(tmp_path, seed=0)


LINES = {
    "no such image": "val_77.JPEG\tn00000001\n",
    "other classes": "val_0.JPEG\tn99999999\n",
    "nothing": "\n",
}


@pytest.mark.parametrize("name", LINES)
def test_annotations_name_images_of_the_tree_only(tmp_path: Path, name: str) -> None:
    tree = tiny_imagenet(tmp_path)
    (tree / "val/val_annotations.txt").write_text(LINES[name])
    with raises(IsthmusError):
        TinyImageNet().load(tmp_path, seed=0)


def test_folders_are_covered_and_cut_around_the_centre(tmp_path: Path) -> None:
    """40 x 20 becomes 16 x 8, of which the columns 4 to 11 stay: red up to the middle, then blue.
    Next to the middle the two colours mix."""
    folders(tmp_path / "imagenet")
    arrays = ImageNet(size=8).load(tmp_path, seed=0)
    assert (arrays.x.shape, arrays.test_x.shape) == ((9, 3, 8, 8), (9, 3, 8, 8))
    assert arrays.x[0, 0, 3].tolist()[:3] == [255] * 3
    assert arrays.x[0, 0, 3].tolist()[5:] == [0] * 3
    assert arrays.x[0, 2, 3].tolist()[5:] == [255] * 3
    assert (arrays.labels, arrays.y.tolist()) == (
        ("cat", "dog", "newt"),
        [0, 0, 0, 1, 1, 1, 2, 2, 2],
    )
    assert arrays.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("place", ["list", "pets/some.txt", "some.txt"])
def test_classes_are_chosen_by_a_list_or_a_file(tmp_path: Path, place: str) -> None:
    folders(tmp_path / "pets")
    chosen = "newt, cat,newt"
    if place != "list":
        (tmp_path / place).write_text("newt\n\ncat\n")
        chosen = "some.txt"
    arrays = ImageNet(path="pets", classes=chosen, size=8).load(tmp_path, seed=0)
    assert (arrays.labels, arrays.y.tolist()) == (("newt", "cat"), [0, 0, 0, 1, 1, 1])


def test_arrays_of_other_classes_and_sizes_stay(tmp_path: Path) -> None:
    folders(tmp_path / "imagenet")
    for classes, size in (("", 8), ("cat,dog", 8), ("cat,newt", 8), ("", 16), ("", 8)):
        ImageNet(classes=classes, size=size).load(tmp_path, seed=0)
    assert len(kept(tmp_path, "imagenet")) == 8


MISTAKES = {
    "another name": ImageNet(path="photos"),
    "a class": ImageNet(classes="cat,dgo"),
    "a class that climbs": ImageNet(classes="../val/dog"),
    "a long list": ImageNet(classes="cat," * 5000 + "cow"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_said_in_one_line(tmp_path: Path, name: str) -> None:
    source = MISTAKES[name]
    folders(tmp_path / "root/imagenet")
    with raises(IsthmusError):
        source.load(tmp_path / "root", seed=0)


def test_a_class_without_images_is_named(tmp_path: Path) -> None:
    folders(tmp_path / "imagenet")
    for path in (tmp_path / "imagenet/val/dog").iterdir():
        path.rename(path.with_suffix(".txt"))
    with raises(IsthmusError):
        ImageNet().load(tmp_path, seed=0)


def test_without_pillow_the_command_that_installs_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_imagenet(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with raises(IsthmusError):
        TinyImageNet().load(tmp_path, seed=0)


def test_what_takes_long_is_said_once_and_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With no patience the line comes after the first item; the last one needs none."""
    monkeypatch.setattr(progress, "SILENT_SECONDS", -1.0)
    assert list(progress.show_progress(range(3), "reading")) == [0, 1, 2]
    assert list(progress.show_progress(range(1), "reading")) == [0]
    out, err = capsys.readouterr()
    assert (out, err) == ("", "reading: 1 of 3 done in -1 s\n")


def test_a_terminal_gets_a_bar_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SILENT_SECONDS", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(progress.show_progress(range(3), "reading")) == [0, 1, 2]
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err


SMALL = [
    *("--rounds", "1", "--method", "fedavg", "--set", "clients=5", "--set", "clients_per_round=2"),
    *("--set", "epochs=1", "--set", "model=mlp", "--set", "hidden=8", "--set", "partition=iid"),
]


def test_a_run_notes_which_classes_are_missing(isthmus: Isthmus, tmp_path: Path) -> None:
    tiny_imagenet(tmp_path, train=10)
    said = isthmus("run", "--data", "tinyimagenet", "--data-root", tmp_path, *SMALL)
    assert said.code == 0, said.err
    check(said.err)


@pytest.mark.skipif(
    not ROOT or not (Path(ROOT) / "tiny-imagenet-200").is_dir(),
    reason="ISTHMUS_DATA_ROOT names no folder with TinyImageNet",
)
def test_the_real_tiny_imagenet_has_500_images_of_each_class(
    tmp_path: Path, isthmus: Isthmus
) -> None:
    """500 for training and 50 for validation, whichever classes are there; then a run on them,
    and one on the same files as folders. The arrays are kept beside a link to the tree."""
    tree = Path(str(ROOT)) / "tiny-imagenet-200"
    (tmp_path / tree.name).symlink_to(tree)
    arrays = TinyImageNet().load(tmp_path, seed=0)
    assert arrays.x.shape == (500 * arrays.classes, 3, 64, 64)
    assert np.bincount(arrays.y).tolist() == [500] * arrays.classes
    assert np.bincount(arrays.test_y).tolist() == [50] * arrays.classes
    assert len(set(arrays.labels)) == arrays.classes
    assert isthmus("run", "--data", "tinyimagenet", "--data-root", tmp_path, *SMALL).digest
    wnids = (tree / "wnids.txt").read_text().split()[:2]
    for part in ("train", "val"):
        (tmp_path / "imagenet" / part).mkdir(parents=True)
        for wnid in wnids:
            place = tmp_path / "imagenet" / part / wnid
            place.symlink_to(tree / "train" / wnid / "images")
    size = ("--set", "size=16")
    assert isthmus("run", "--data", "imagenet", "--data-root", tmp_path, *SMALL, *size).digest
