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
from isthmus.data.own.arrays import PARTS, Piece, join_pieces, read_pieces
from isthmus.data.own.own_files import ARRAYS, find_own_files, list_visible
from isthmus.errors import IsthmusError
from isthmus.ranges import NonNegativeInt, Positive
from isthmus.system.files import open_regular
from isthmus.system.machine import free_memory

IMAGES = (".png", ".jpg", ".jpeg")
FORMATS = ("PNG", "JPEG")


class ClientFile(NamedTuple):
    """A file, whose it is, in which part, and of images the class."""

    path: Path
    owner: str
    part: int | None
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
        """Reads the folders."""
        return self.like(find_own_files(self.path, root), None)

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Reads folders, with the classes of other data if there are any."""
        files = [file for client in list_visible(path) for file in _of_client(client)]
        labelled = {file.label is not None for file in files}
        if len(labelled) != 1:
            given = "images and arrays" if labelled else "no images and no arrays"
            raise IsthmusError(
                f"{path} has {given} in its clients' folders; expected one of CLIENT/CLASS/*.png "
                "and CLIENT/*.npz; see the page on own data"
            )
        if labelled == {False}:
            read = [piece for f in files for piece in read_pieces(f.path, f.owner, f.part)]
            return join_pieces(read, self.scale, other)
        return join_pieces(list(self._read_images(files)), self.scale, other)

    def _read_images(self, files: Sequence[ClientFile]) -> Iterator[Piece]:
        images, start = self._decode([file.path for file in files]), 0
        for (owner, part, label), alike in groupby(files, key=lambda file: file[1:]):
            group = list(alike)
            x = images[start : start + len(group)]
            start += len(group)
            yield Piece(group[0].path, owner, part, x, np.full(len(x), label))

    def _decode(self, paths: Sequence[Path]) -> NDArray[np.uint8]:
        first = self._image(paths[0], None)
        needed, free = first.nbytes * len(paths), free_memory()
        if free is not None and 2 * needed > free:
            raise IsthmusError(
                f"{len(paths):,} images need {2 * needed / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are "
                "free; expected them to fit; set a smaller size"
            )
        result = np.empty((len(paths), *first.shape), np.uint8)
        for row, path in enumerate(paths):
            result[row] = self._image(path, first.shape)
        return result

    def _image(self, path: Path, shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
        try:
            from PIL import Image
        except ImportError:
            raise IsthmusError(
                "images need Pillow; expected it to be installed; pip install 'isthmus[images]'"
            ) from None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of an image that unpacks to too many pixels
                with open_regular(path) as file, Image.open(file, formats=FORMATS) as opened:
                    given = (opened.height, opened.width)
                    if shape is not None and not self.size and given != shape[1:]:
                        raise _other_size(path, given, shape)
                    image: Any = opened.convert("L" if self.channels == 1 else "RGB")
            if self.size:
                image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        except IsthmusError:
            raise
        except Exception as error:  # what a damaged file makes a reader raise is anybody's guess
            raise IsthmusError(
                f"{path} cannot be read ({' '.join(str(error).split())[:160]}); expected a PNG or "
                "JPEG image; get it again, or move it away"
            ) from None
        pixels = np.asarray(image, np.uint8)
        return pixels[None] if self.channels == 1 else pixels.transpose(2, 0, 1)


def _other_size(path: Path, given: tuple[int, int], shape: tuple[int, ...]) -> IsthmusError:
    return IsthmusError(
        f"{path} is {given[0]} x {given[1]}, others are {shape[1]} x {shape[2]}; expected images "
        f"of one size; set size, for example --set size={shape[1]}"
    )


def _of_client(client: Path) -> Iterator[ClientFile]:
    if not client.is_dir():
        raise IsthmusError(
            f"{client} lies among clients' folders; expected a folder per client and nothing else; "
            "move it away"
        )
    entries = list_visible(client)
    names = {entry.name for entry in entries if entry.is_dir()}
    divided = "train" in names and names <= set(PARTS)
    for entry in entries:
        if divided and entry.is_dir():
            for inner in list_visible(entry):
                yield from _of_class_or_file(inner, client.name, PARTS[entry.name])
        else:
            yield from _of_class_or_file(entry, client.name, None)


def _of_class_or_file(entry: Path, owner: str, part: int | None) -> Iterator[ClientFile]:
    if entry.is_dir():
        for file in list_visible(entry):
            if file.suffix.lower() not in IMAGES or file.is_dir():
                raise _neither(file)
            yield ClientFile(file, owner, part, entry.name)
    elif entry.suffix in ARRAYS:
        yield ClientFile(entry, owner, PARTS.get(entry.stem) if part is None else part, None)
    else:
        raise _neither(entry)


def _neither(path: Path) -> IsthmusError:
    return IsthmusError(
        f"{path} is neither an image in a class's folder (.png, .jpg) nor an .npz or .safetensors "
        "file; expected one of them; move it away"
    )
