"""MNIST from its four original IDX files, gzipped or not.

Y. LeCun, C. Cortes, C. Burges: 60,000 training and 10,000 test images of handwritten digits,
1x28x28, ten classes (CC BY-SA 3.0). Expected in the folder `mnist` of the data root, or in the data
root itself:
`train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`,
`t10k-labels-idx1-ubyte`, each with or without `.gz`.
"""

import gzip
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from isthmus.data.sources.arrays import Arrays
from isthmus.errors import IsthmusError


@dataclass(frozen=True)
class Mnist:
    """MNIST, 1x28x28, ten classes; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "twonn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files."""
        x, y = _pair(root, "train")
        test_x, test_y = _pair(root, "t10k")
        if x.shape[1:] != test_x.shape[1:]:
            raise IsthmusError(
                f"MNIST's training images are {x.shape[2:]} and its test images "
                f"{test_x.shape[2:]} in size; expected one size; get the files again"
            )
        return Arrays(x, y, test_x, test_y, classes=10, scale=255.0)


def _pair(root: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images = read_idx(_find(root, f"{part}-images-idx3-ubyte"), dimensions=3)
    labels = read_idx(_find(root, f"{part}-labels-idx1-ubyte"), dimensions=1)
    if len(images) != len(labels):
        raise IsthmusError(
            f"MNIST's {part} files hold {len(images)} images and {len(labels)} labels; "
            "expected as many of one as of the other; get the files again"
        )
    if labels.max(initial=0) > 9:
        raise IsthmusError(
            f"MNIST's {part} files hold the label {labels.max()}; expected 0 to 9; these are not "
            "MNIST's: get the files again"
        )
    return images[:, None], labels.astype(np.int64)


def _find(root: Path, name: str) -> Path:
    for folder in (root / "mnist", root):
        for path in (folder / f"{name}.gz", folder / name):
            if path.is_file():
                return path
    raise IsthmusError(
        f"no {name}.gz in {root / 'mnist'} or {root}; expected the four original MNIST files; "
        "put them there, or name their folder with --data-root"
    )


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Reads an IDX file of unsigned bytes, checking its header against its size."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise IsthmusError(f"{path} cannot be read ({error}); get the file again") from error
    head = 4 + 4 * dimensions
    if len(data) < head or data[:4] != bytes([0, 0, 8, dimensions]):
        raise IsthmusError(
            f"{path} begins with {data[:4].hex() or 'nothing'}; expected the IDX header "
            f"{bytes([0, 0, 8, dimensions]).hex()}; get the file again"
        )
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", dimensions, offset=4))
    if len(data) != head + prod(shape):
        raise IsthmusError(
            f"{path} holds {len(data) - head} bytes after its header; its header says "
            f"{' x '.join(str(size) for size in shape)}; get the file again"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)
