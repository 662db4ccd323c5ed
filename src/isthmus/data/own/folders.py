"""A folder per client, of images in a folder per class, or of arrays in files.

    CLIENT/CLASS/*.png                  CLIENT/*.npz
    CLIENT/train/CLASS/*.png            CLIENT/train.npz, CLIENT/test.npz
    CLIENT/test/CLASS/*.png             CLIENT/train/*.npz, CLIENT/test/*.npz

Images are .png, .jpg or .jpeg, arrays .npz or .safetensors. `validation` may stand beside train and
test.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import Arrays
from isthmus.data.file_errors import reading
from isthmus.data.own.arrays import SPLITS, Piece, join_pieces, read_pieces
from isthmus.data.own.own_files import ARRAYS, find_own_files, list_visible
from isthmus.errors import IsthmusError
from isthmus.ranges import NonNegativeInt, Positive
from isthmus.system.machine import refuse_lack_of_memory

IMAGES = (".png", ".jpg", ".jpeg")
FORMATS = ("PNG", "JPEG")


class ClientFile(NamedTuple):
    """A file, whose it is, in which part, and of images the class."""

    path: Path
    owner: str
    split: int | None
    label: str | None


@dataclass(frozen=True)
class Folders:
    """A folder per client: in it a folder of images per class, or .npz or .safetensors files."""

    path: str = ""
    size: NonNegativeInt = 0  # images become size x size; 0: all must have one size already
    channels: Literal[1, 3] = 3  # grey or coloured images
    scale: Positive = 255.0  # whole-number inputs are divided by it

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the folders."""
        return self.like(find_own_files(self.path, root), None)

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Read folders, with the classes of other data if there are any."""
        files = [file for client in list_visible(path) for file in _of_client(client)]
        labelled = {file.label is not None for file in files}
        if len(labelled) != 1:
            given = "images and arrays" if labelled else "no images and no arrays"
            raise IsthmusError(
                f"{path} has {given} in its clients' folders; put there CLIENT/CLASS/*.png, or "
                "CLIENT/*.npz"
            )
        if labelled == {False}:
            read = [piece for f in files for piece in read_pieces(f.path, f.owner, f.split)]
            return join_pieces(read, self.scale, other)
        return join_pieces(list(self._read_images(files)), self.scale, other)

    def _read_images(self, files: Sequence[ClientFile]) -> Iterator[Piece]:
        images, start = self._decode([file.path for file in files]), 0
        for (owner, split, label), alike in groupby(files, key=lambda file: file[1:]):
            group = list(alike)
            x = images[start : start + len(group)]
            start += len(group)
            yield Piece(group[0].path, owner, split, x, np.full(len(x), label))

    def _decode(self, paths: Sequence[Path]) -> NDArray[np.uint8]:
        first = self._image(paths[0])
        size = 2 * first.nbytes * len(paths)  # they are joined
        refuse_lack_of_memory(f"{len(paths):,} images take", size, "set a smaller size")
        result = np.empty((len(paths), *first.shape), np.uint8)
        for row, path in enumerate(paths):
            image = self._image(path)
            if image.shape != first.shape:
                given, others = ("{1} x {2}".format(*each.shape) for each in (image, first))
                raise IsthmusError(
                    f"{path} is {given}, others are {others}; set size, for example --set "
                    f"size={first.shape[1]}"
                )
            result[row] = image
        return result

    def _image(self, path: Path) -> NDArray[np.uint8]:
        try:
            from PIL import Image
        except ImportError:
            raise IsthmusError(
                "images need Pillow; install it with: pip install 'isthmus[images]'"
            ) from None
        with reading(path, "get it again, or move it away"), warnings.catch_warnings():
            warnings.simplefilter("error")  # of an image that unpacks to too many pixels
            with Image.open(path, formats=FORMATS) as opened:
                image: Any = opened.convert("L" if self.channels == 1 else "RGB")
            if self.size:
                image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image, np.uint8)
        return pixels[None] if self.channels == 1 else pixels.transpose(2, 0, 1)


def _of_client(client: Path) -> Iterator[ClientFile]:
    if not client.is_dir():
        raise IsthmusError(f"{client} lies among clients' folders; move it away")
    entries = list_visible(client)
    names = {entry.name for entry in entries if entry.is_dir()}
    divided = "train" in names and names <= set(SPLITS)
    for entry in entries:
        if divided and entry.is_dir():
            for inner in list_visible(entry):
                yield from _of_class_or_file(inner, client.name, SPLITS[entry.name])
        else:
            yield from _of_class_or_file(entry, client.name, None)


def _of_class_or_file(entry: Path, owner: str, split: int | None) -> Iterator[ClientFile]:
    for file in list_visible(entry) if entry.is_dir() else [entry]:
        if entry.is_dir() and file.suffix.lower() in IMAGES:
            yield ClientFile(file, owner, split, entry.name)
        elif file is entry and file.suffix in ARRAYS:
            yield ClientFile(file, owner, SPLITS.get(file.stem) if split is None else split, None)
        else:
            raise IsthmusError(
                f"{file} is neither an image in a class's folder (.png, .jpg) nor an .npz or "
                ".safetensors file; move it away"
            )
