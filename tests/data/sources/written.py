"""Small data sets in the formats of the real ones, written for tests."""

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


def idx(array: NDArray[np.uint8]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


class Python2Pickler(pickle._Pickler):
    """Writes strings as Python 2 did, and numpy's names as they were then."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def _bytes(self, value: bytes) -> None:
        short = len(value) < 256
        head = b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))
        self.write(head + value)
        self.memoize(value)

    def _text(self, value: str) -> None:
        self._bytes(value.encode("ascii"))

    def _function(self, value: Any, name: str | None = None) -> None:
        assert value.__name__ == "_reconstruct"
        self.write(b"cnumpy.core.multiarray\n_reconstruct\n")
        self.memoize(value)

    dispatch[bytes], dispatch[str], dispatch[type(len)] = _bytes, _text, _function


def python2(value: Any) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def batch(count: int = 10, classes: int = 10, first: int = 0) -> dict[str, Any]:
    """One file of CIFAR-10: image i is filled with the number first + i."""
    data = np.repeat(np.arange(first, first + count, dtype=np.uint8), 3072).reshape(count, 3072)
    return {
        "batch_label": "a batch",
        "labels": [i % classes for i in range(count)],
        "data": data,
        "filenames": [f"{i:05}.png" for i in range(count)],
    }


def cifar10(count: int = 10) -> dict[str, dict[str, Any]]:
    """All files of a tiny CIFAR-10; image i of data_batch_b is filled with 10 (b - 1) + i."""
    files = {f"data_batch_{b}": batch(count, first=10 * (b - 1)) for b in range(1, 6)}
    files["test_batch"] = batch(count, first=100)
    names = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    files["batches.meta"] = {"num_cases_per_batch": count, "label_names": names, "num_vis": 3072}
    return files


def cifar100(count: int = 100) -> dict[str, dict[str, Any]]:
    files = {}
    for part in ("train", "test"):
        found = batch(count, 100)
        fine = found.pop("labels")
        files[part] = found | {"fine_labels": fine, "coarse_labels": [i // 5 for i in fine]}
    files["meta"] = {
        "fine_label_names": [f"fine {i}" for i in range(100)],
        "coarse_label_names": [f"coarse {i}" for i in range(20)],
    }
    return files


def pickled(folder: Path, files: dict[str, dict[str, Any]], protocol: int = 0) -> Path:
    """Writes files as Python 2 did, or with a protocol of Python 3."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        data = pickle.dumps(value, protocol) if protocol else python2(value)
        (folder / name).write_bytes(data)
    return folder


def packed(path: Path, members: list[tuple[str | tarfile.TarInfo, bytes]]) -> None:
    """Writes a .tar.gz; a member is a name, or all that a header says."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in members:
            entry = tarfile.TarInfo(name) if isinstance(name, str) else name
            if entry.isreg():
                entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def write(folder: Path, files: dict[str, bytes], *, zipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(data) if zipped else data)


def photo(path: Path, size: tuple[int, int] = (64, 64), colour: Any = (200, 100, 50)) -> None:
    """Writes an image of one colour: a number makes it grey."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)


WNIDS = ("n00000002", "n00000001", "n00000003")


def tiny_imagenet(root: Path, train: int = 4, val: int = 2) -> Path:
    """A tree of three classes, of which wnids.txt names another one that is not there."""
    tree = root / "tiny-imagenet-200"
    lines = []
    for label, wnid in enumerate(WNIDS):
        for i in range(train):
            photo(tree / f"train/{wnid}/images/{wnid}_{i}.JPEG", colour=(60 * label, 10 * i, 255))
        for i in range(val):
            name = f"val_{3 * i + label}.JPEG"
            photo(tree / "val/images" / name, colour=60 * label)
            lines.append(f"{name}\t{wnid}\t0\t0\t63\t63\n")
    (tree / "val/val_annotations.txt").write_text("".join(reversed(lines)))
    (tree / "wnids.txt").write_text("\n".join((*WNIDS, "n00000009")))
    words = (("n00000001", "goldfish"), ("n00000002", "cat, tabby"), ("n00000009", "bus"))
    (tree / "words.txt").write_text("".join(f"{wnid}\t{name}\n" for wnid, name in words))
    return tree


def folders(tree: Path, classes: tuple[str, ...] = ("cat", "dog", "newt"), count: int = 3) -> None:
    """Folders as ImageNet has them, of images 40 wide and 20 high, half red and half blue."""
    from PIL import Image

    image = Image.new("RGB", (40, 20), (255, 0, 0))
    image.paste((0, 0, 255), (20, 0, 40, 20))
    for part in ("train", "val"):
        for name in classes:
            (tree / part / name).mkdir(parents=True)
            for i in range(count):
                image.save(tree / part / name / f"{i}.png")
