"""Folders of photographs, decoded once to arrays on disk beside the folder."""

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.file_errors import reading
from isthmus.data.named.cache import map_array, name_state, write_array
from isthmus.data.progress import show_progress
from isthmus.errors import IsthmusError, UnwritableError
from isthmus.system.files import remove_drafts

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
ENDINGS = (".jpeg", ".jpg", ".png")

Images = NDArray[np.uint8]


class Photograph(NamedTuple):
    """A file, its class, and what shows whether it changed."""

    path: str
    label: int
    nbytes: int
    changed: int  # nanoseconds since 1970


def describe_photograph(path: str, label: int) -> Photograph:
    """Return what is known of one file before it is decoded."""
    with reading(path):
        state = os.stat(path)
    return Photograph(path, label, state.st_size, state.st_mtime_ns)


def list_photographs(folders: Sequence[Path], what: str) -> list[Photograph]:
    """List all images in the folders of the classes 0, 1, ..., in the order of their names."""
    photographs = []
    for label, folder in enumerate(show_progress(folders, what)):
        with reading(str(folder)):
            names = sorted(name for name in os.listdir(folder) if name.lower().endswith(ENDINGS))
        if not names:
            raise IsthmusError(
                f"{folder} holds no images; put files there that end in {', '.join(ENDINGS)}, or "
                "leave the class out"
            )
        photographs += [describe_photograph(os.path.join(folder, name), label) for name in names]
    return photographs


def list_labels(files: Sequence[Photograph]) -> NDArray[np.int64]:
    """Return the class of every file."""
    return np.array([file.label for file in files], np.int64)


def decode(
    files: Sequence[Photograph], tree: Path, part: str, side: int, *, exact: bool = False
) -> Images:
    """Decode files of a tree to images [n, 3, side, side], or map what was decoded before.

    An image of another size is made to cover the square and cut around its centre; with `exact`,
    it is refused.
    """
    name = name_state(
        (os.path.relpath(file.path, tree), file.nbytes, file.changed) for file in files
    )
    path = tree.with_name(f"{tree.name}.decoded") / f"{part}-{side}-{name}.npy"
    remove_drafts(path.parent)
    shape = (len(files), 3, side, side)
    images = map_array(path)
    if images is not None and images.shape == shape:
        return images

    def decode_all() -> Iterable[Images]:
        for file in show_progress(files, f"decoding {tree.name}, {part}"):
            yield decode_image(file.path, side, exact)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of files that are odd and can be read
        try:
            write_array(path, np.uint8, shape, decode_all())
        except UnwritableError:
            return np.fromiter(decode_all(), np.dtype((np.uint8, shape[1:])), len(files))
    written = map_array(path)
    assert written is not None
    return written


def decode_image(path: str, side: int, exact: bool) -> Images:
    """Decode one file to an image [3, side, side]."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise IsthmusError(
            "images are decoded with Pillow; install it with: pip install 'isthmus[images]'"
        ) from None
    with reading(Path(path)), Image.open(path, formats=("JPEG", "PNG")) as image:
        if exact and image.size != (side, side):
            given = f"{image.width} x {image.height}"
            raise IsthmusError(f"{path} is {given}, not {side} x {side}; get the file again")
        image.draft("RGB", (2 * side, 2 * side))  # of a large JPEG no more than is needed
        square = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.BILINEAR)
    return np.asarray(square).transpose(2, 0, 1)
