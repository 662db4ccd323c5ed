"""Folders of photographs, decoded once to arrays on disk beside the folder."""

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.file_errors import refuse_broken
from isthmus.data.named.cache import delete_others, map_array, name_state, write_array
from isthmus.data.progress import show_progress
from isthmus.errors import IsthmusError, UnwritableError
from isthmus.system.files import open_regular, remove_drafts

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


def describe_photograph(path: str, label: int) -> Photograph:
    """Looks at one file."""
    try:
        state = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: no file has such a name
        raise refuse_broken(path, error) from error
    if not S_ISREG(state.st_mode):
        raise IsthmusError(f"{path} is no ordinary file; expected an image; get the file again")
    return Photograph(path, label, state.st_size, state.st_mtime_ns)


def list_photographs(folders: Sequence[Path], what: str) -> list[Photograph]:
    """Looks at all images in the folders of the classes 0, 1, ..., in the order of their names."""
    photographs = []
    for label, folder in enumerate(show_progress(folders, what)):
        try:
            names = [name for name in os.listdir(folder) if name.lower().endswith(ENDINGS)]
        except OSError as error:
            raise refuse_broken(folder, error) from error
        if not names:
            raise IsthmusError(
                f"{folder} holds no images; expected files that end in {', '.join(ENDINGS)}; put "
                "them there, or leave the class out"
            )
        photographs += [
            describe_photograph(os.path.join(folder, name), label) for name in sorted(names)
        ]
    return photographs


def list_labels(files: Sequence[Photograph]) -> NDArray[np.int64]:
    """Gives the class of every file."""
    return np.array([file.label for file in files], np.int64)


def decode(
    files: Sequence[Photograph], tree: Path, part: str, side: int, *, exact: bool = False
) -> Images:
    """Decodes files of a tree to images [n, 3, side, side], or maps what was decoded before.

    An image of another size is made to cover the square and cut around its centre; where `exact`,
    it is refused.
    """
    stem, shape = f"{part}-{side}", (len(files), 3, side, side)
    name = name_state(
        (os.path.relpath(file.path, tree), file.nbytes, file.changed) for file in files
    )
    path = tree.with_name(f"{tree.name}.decoded") / f"{stem}-{name}.npy"
    remove_drafts(path.parent)
    images = _map_images(path, shape)
    if images is not None:
        return images
    _need_pillow(tree.name)

    def decode_all() -> Iterable[Images]:
        for file in show_progress(files, f"decoding {tree.name}, {part}"):
            yield decode_image(file.path, side, exact)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of files that are odd and can be read
        try:
            write_array(path, np.uint8, shape, decode_all())
            delete_others(path, stem)
            images = _map_images(path, shape)
        except UnwritableError:  # no reading error: those have become other ones
            images = None
        if images is None:
            images = np.fromiter(decode_all(), np.dtype((np.uint8, shape[1:])), len(files))
    return images


def _map_images(path: Path, shape: tuple[int, ...]) -> Images | None:
    images = map_array(path)
    if images is None or images.shape != shape or images.dtype != np.uint8:
        return None
    return images


def decode_image(path: str, side: int, exact: bool) -> Images:
    """Decodes one file to an image [3, side, side]."""
    from PIL import Image, ImageOps

    try:
        with open_regular(path) as file, Image.open(file, formats=("JPEG", "PNG")) as image:
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
        raise refuse_broken(path, error) from error
    return np.asarray(square).transpose(2, 0, 1)


def _need_pillow(name: str) -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise IsthmusError(
            f"{name} has to be decoded, and Pillow is not installed; expected it; run: "
            "pip install 'isthmus[images]'"
        ) from None
