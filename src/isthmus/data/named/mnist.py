"""MNIST, Fashion-MNIST and EMNIST from their original IDX files, each with or without `.gz`.

MNIST: Y. LeCun, C. Cortes, C. Burges; 60,000 training and 10,000 test images of handwritten digits,
1x28x28, ten classes (CC BY-SA 3.0). Expected in the folder `mnist` of the data root, or in the data
root itself: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`,
`t10k-labels-idx1-ubyte`.

Fashion-MNIST: H. Xiao, K. Rasul, R. Vollgraf (Zalando Research, 2017); as many images of articles
of clothing, 1x28x28, ten classes (MIT licence). Its files are called as MNIST's are, so that they
are expected in the folder `fashion-mnist` of the data root and nowhere else.

EMNIST by class: G. Cohen, S. Afshar, J. Tapson, A. van Schaik (2017), made from NIST Special
Database 19 (a work of the United States government, in the public domain): 697,932 training and
116,323 test images of handwritten characters, 1x28x28, 62 classes: the digits, the capital letters,
the small letters. Expected in the folder `emnist` or `gzip` of the data root, or in the data root
itself: `emnist-byclass-train-images-idx3-ubyte`, `emnist-byclass-train-labels-idx1-ubyte` and the
same two for `test`; or the official archive `gzip.zip`, which is read as it is. The files hold
every image with rows and columns exchanged; here they are upright.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isthmus.data.arrays import Arrays
from isthmus.data.named.idx import IdxFiles

MNIST = IdxFiles("mnist", "MNIST", classes=10, folders=("mnist", "."))
FASHION = IdxFiles("fashion-mnist", "Fashion-MNIST", classes=10, folders=("fashion-mnist",))
EMNIST = IdxFiles(
    "emnist",
    "EMNIST",
    classes=62,
    folders=("emnist", "emnist/gzip", "gzip", "."),
    train="emnist-byclass-train",
    test="emnist-byclass-test",
    archive="gzip.zip",
    inside="gzip/",
    turned=True,
)
CLOTHES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)


@dataclass(frozen=True)
class Mnist:
    """MNIST, 1x28x28, ten classes; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "twonn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files."""
        return MNIST.load(root)


@dataclass(frozen=True)
class FashionMnist:
    """Fashion-MNIST, 1x28x28, ten classes; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "twonn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files."""
        return FASHION.load(root)._replace(labels=CLOTHES)


@dataclass(frozen=True)
class Emnist:
    """EMNIST by class, 1x28x28, 62 characters; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 1543
    model: ClassVar[str] = "cnn5"
    partition: ClassVar[Mapping[str, str]] = {"name": "semantic", "kind": "emnist"}

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files; the images are upright."""
        return EMNIST.load(root)._replace(labels=CHARACTERS)
