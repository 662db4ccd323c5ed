"""Folders of photographs, decoded once and kept beside the folder as arrays on disk.

An array is called after what it was made from: the names, sizes and times of all files, and the
size of the images. Where one of them changes another array is made, and the old one goes. It is
written under another name first, so that a killed process leaves no half of one, and mapped into
memory rather than read. Where nothing can be written, the images are kept in memory. The folder of
arrays, `TREE.decoded`, may be deleted at any time.
"""

import hashlib
import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.sources.missing import broken
from isthmus.data.sources.progress import shown
from isthmus.errors import IsthmusError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as everybody has them
ENDINGS = (".jpeg", ".jpg", ".png")
MOST_PIXELS = 2**26  # in an image; one that claims more is a mistake or a trap

Images = NDArray[np.uint8]


class Photograph(NamedTuple):
    """A file, its class, and what tells whether it changed."""

    path: str
    label: int
    nbytes: int
    changed: int  # nanoseconds since 1970


def photograph(path: str, label: int) -> Photograph:
    """Looks at one file."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise broken(path, error) from error
    if not S_ISREG(found.st_mode):
        raise IsthmusError(f"{path} is no ordinary file; expected an image; get the file again")
    return Photograph(path, label, found.st_size, found.st_mtime_ns)


def photographs(folders: Sequence[Path], what: str) -> list[Photograph]:
    """Looks at all images in the folders of the classes 0, 1, ..., in the order of their names."""
    found = []
    for label, folder in enumerate(shown(folders, what)):
        try:
            names = [name for name in os.listdir(folder) if name.lower().endswith(ENDINGS)]
        except OSError as error:
            raise broken(folder, error) from error
        if not names:
            raise IsthmusError(
                f"{folder} holds no images; expected files that end in {', '.join(ENDINGS)}; put "
                "them there, or leave the class out"
            )
        found += [photograph(os.path.join(folder, name), label) for name in sorted(names)]
    return found


def labels(files: Sequence[Photograph]) -> NDArray[np.int64]:
    """Gives the class of every file."""
    return np.array([file.label for file in files], np.int64)


def decoded(
    files: Sequence[Photograph], tree: Path, part: str, side: int, *, exact: bool = False
) -> Images:
    """Decodes files of a tree to images [n, 3, side, side], or finds that it was done before.

    An image of another size is made to cover the square and cut around its centre; where `exact`,
    it is refused.
    """
    stem, shape = f"{part}-{side}", (len(files), 3, side, side)
    path = tree.with_name(f"{tree.name}.decoded") / f"{stem}-{_stamp(files, tree)}.npy"
    found = _mapped(path, shape)
    if found is not None:
        return found
    _need_pillow(tree.name)

    def images() -> Iterable[Images]:
        for file in shown(files, f"decoding {tree.name}, {part}"):
            yield _image(file.path, side, exact)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of files that are odd and can be read
        try:
            _write(path, shape, images())
        except OSError:  # no reading error: those have become IsthmusErrors
            return np.fromiter(images(), np.dtype((np.uint8, shape[1:])), len(files))
    for old in path.parent.glob(f"{stem}-*.npy"):
        if old != path:
            with suppress(OSError):
                old.unlink()
    found = _mapped(path, shape)
    assert found is not None  # it was written just now
    return found


def _stamp(files: Sequence[Photograph], tree: Path) -> str:
    sha = hashlib.sha256()
    for file in files:
        name = os.path.relpath(file.path, tree)
        sha.update(f"{name}\0{file.nbytes}\0{file.changed}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()[:16]


def _mapped(path: Path, shape: tuple[int, ...]) -> Images | None:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return found if found.shape == shape and found.dtype == np.uint8 else None


def _write(path: Path, shape: tuple[int, ...], images: Iterable[Images]) -> None:
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    head = {"descr": "|u1", "fortran_order": False, "shape": shape}
    try:
        with part.open("wb") as file:  # not mapped: a full disk is an error here, not a signal
            np.lib.format.write_array_header_1_0(file, head)
            for image in images:
                file.write(image.tobytes())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _image(path: str, side: int, exact: bool) -> Images:
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            if image.width * image.height > MOST_PIXELS or (exact and image.size != (side, side)):
                wanted = f"{side} x {side}" if exact else f"at most {MOST_PIXELS:,} pixels"
                raise IsthmusError(
                    f"{path} is {image.width} x {image.height}; expected {wanted}; get the file "
                    "again"
                )
            image.draft("RGB", (2 * side, 2 * side))  # of a large JPEG no more than is needed
            square = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.BILINEAR)
    except IsthmusError:
        raise
    except Exception as error:  # Pillow raises whatever it stumbles over in a broken file
        raise broken(path, error) from error
    return np.asarray(square).transpose(2, 0, 1)


def _need_pillow(name: str) -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise IsthmusError(
            f"{name} has to be decoded, and Pillow is not installed; expected it; run: "
            "pip install 'isthmus[images]'"
        ) from None
