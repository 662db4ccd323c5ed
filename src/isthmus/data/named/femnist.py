"""FEMNIST: handwritten characters of some 3,600 writers, each of whom is a client.

NIST Special Database 19 (public domain), prepared by LEAF (BSD 2-Clause): 1x28x28, 62 classes: the
digits, capital and small letters. Expected in the folder `femnist` of the data root: LEAF's json
files (`data/train` and `data/test`, or `data/all_data`), or `femnist.npz`, which
`isthmus data get femnist --source hub` writes: arrays `x`, `y`, `owner` and `names`.

LEAF writes a pixel as k/255, paper as 1 and ink as 0, the other way round than MNIST. It stays so,
in one byte; only where some value is farther than 0.001/255 from any k/255, all become 32-bit
floating-point numbers. LEAF's split stays; the validation part is cut from its training part.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from isthmus.data.arrays import TRAIN, Arrays
from isthmus.data.file_errors import reading, refuse_missing
from isthmus.data.named import leaf
from isthmus.data.named.mnist import CHARACTERS
from isthmus.data.own.arrays import unpack_arrays

PACKED = "femnist.npz"


@dataclass(frozen=True)
class Femnist:
    """FEMNIST, 1x28x28, 62 characters, a client per writer; read from --data-root."""

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "vgg9"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the file of arrays if it is there, else LEAF's files."""
        folder = root / "femnist"
        if (folder / PACKED).is_file():
            split, writers = False, _read_packed(folder / PACKED)
        elif files := leaf.find_files(folder):
            split, writers = files[0][0] is not None, {}
            for share in leaf.shares(files):
                with share.reading():
                    writers.setdefault(share.user, []).append(_block(share))
        else:
            places = f"femnist/{PACKED} or femnist/data/train/*.json"
            raise refuse_missing("femnist", f"{places} below {root}", root)
        _make_alike(writers)
        arrays = leaf.join_users(writers, CHARACTERS)
        return arrays._replace(scale=255.0, split=arrays.split if split else None)


def _block(share: leaf.UserShare) -> leaf.Block:
    x, y = np.asarray(share.x), np.asarray(share.y)
    if not share.y:
        x, y = np.empty((0, 784)), np.empty(0, np.int64)
    if x.shape[1:] != (784,) or not (x.min(initial=0) >= 0 and x.max(initial=0) <= 1):
        raise ValueError("its images are not 784 numbers from 0 to 1 each")
    whole = y.shape == x.shape[:1] and y.dtype.kind in "iu" and y.min(initial=0) >= 0
    if not whole or y.max(initial=0) >= len(CHARACTERS):
        raise ValueError("its labels are not whole numbers from 0 to 61")
    levels = np.rint(x * 255)
    exact = bool((np.abs(x * 255 - levels) <= 1e-3).all())
    pixels = levels.astype(np.uint8) if exact else x.astype(np.float32)
    part = np.full(len(y), share.part or TRAIN, np.int8)
    return leaf.Block(pixels.reshape(-1, 1, 28, 28), y.astype(np.int64), part)


def _make_alike(writers: dict[str, list[leaf.Block]]) -> None:
    """Make all pixels floating-point numbers if some are."""
    if all(block.x.dtype == np.uint8 for blocks in writers.values() for block in blocks):
        return
    for blocks in writers.values():
        for place, block in enumerate(blocks):
            if block.x.dtype == np.uint8:
                pixels = block.x.astype(np.float32) / np.float32(255)
                blocks[place] = block._replace(x=pixels)


def _read_packed(path: Path) -> dict[str, list[leaf.Block]]:
    with reading(path, "get it again: isthmus data get femnist --source hub --force"):
        arrays = unpack_arrays(path)
        x, y, owner = (arrays[name] for name in ("x", "y", "owner"))
        owner, names = owner.astype(np.int64), arrays["names"].tolist()
        if x.dtype != np.uint8 or x.shape != (len(y), 28, 28) or len(owner) != len(y):
            raise ValueError(f"x {x.dtype} {x.shape}, y {y.shape}, not bytes of 28x28 images")
        if y.dtype.kind not in "iu" or y.min(initial=0) < 0 or y.max(initial=0) >= len(CHARACTERS):
            raise ValueError("its labels are not whole numbers from 0 to 61")
        rows = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
        return {
            str(names[owner[own[0]]]): [
                leaf.Block(x[own, None], y[own].astype(np.int64), np.zeros(len(own), np.int8))
            ]
            for own in rows
            if len(own)
        }
