"""TinyImageNet from its tree of JPEG files.

Made for Stanford's course CS231n (2015) from photographs of ImageNet, which may be used for
research and teaching that is not commercial: 200 classes of 500 training and 50 validation images,
3x64x64. Expected in the data root: the folder `tiny-imagenet-200` as it is unpacked, with
`wnids.txt`, `words.txt`, `train/<class>/images/*.JPEG`, `val/images/*.JPEG` and
`val/val_annotations.txt`. The validation images are the server's test set; the labels of the test
images are not published. Of a tree with fewer classes, those are read that it has.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isthmus.data.arrays import Arrays
from isthmus.data.file_errors import reading, refuse_missing
from isthmus.data.named.photographs import (
    MEAN,
    STD,
    Photograph,
    decode,
    describe_photograph,
    list_labels,
    list_photographs,
)

FOLDER = "tiny-imagenet-200"
CLASSES, SIDE = 200, 64


@dataclass(frozen=True)
class TinyImageNet:
    """TinyImageNet, 3x64x64, up to 200 classes; decoded once from the JPEG files of its tree."""

    normalise: bool = True  # by ImageNet's mean and deviation

    clients: ClassVar[int] = 200
    model: ClassVar[str] = "mobilenet"
    partition: ClassVar[str] = "dirichlet-classwise"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the tree."""
        tree = root / FOLDER
        classes = _classes(root)
        words = dict(line.split("\t", 1) for line in _lines(root, "words.txt") if "\t" in line)
        folders = [tree / "train" / name / "images" for name in classes]
        train = list_photographs(folders, f"looking through {FOLDER}")
        test = _validation(root, classes)
        note = f"{FOLDER} has {len(classes)} of its {CLASSES} classes here"
        return Arrays(
            decode(train, tree, "train", SIDE, exact=True),
            list_labels(train),
            decode(test, tree, "val", SIDE, exact=True),
            list_labels(test),
            classes=len(classes),
            scale=255.0,
            mean=MEAN if self.normalise else (),
            std=STD if self.normalise else (),
            labels=tuple(words.get(name, name) for name in classes),
            notes=() if len(classes) == CLASSES else (note,),
        )


def _lines(root: Path, file: str) -> list[str]:
    path = root / FOLDER / file
    if not path.is_file():
        raise refuse_missing("tinyimagenet", f"{file} in {root / FOLDER}", root)
    with reading(path):
        return path.read_text("utf-8").splitlines()


def _classes(root: Path) -> list[str]:
    """List the classes that have a folder, in the order of wnids.txt."""
    train, names = root / FOLDER / "train", map(str.strip, _lines(root, "wnids.txt"))
    classes = [name for name in dict.fromkeys(names) if name and (train / name / "images").is_dir()]
    if not classes:
        raise refuse_missing("tinyimagenet", f"train/<class>/images in {root / FOLDER}", root)
    return classes


def _validation(root: Path, classes: list[str]) -> list[Photograph]:
    """List the validation images of these classes, class by class."""
    file, folder = "val/val_annotations.txt", root / FOLDER / "val" / "images"
    fields = [line.split("\t") for line in _lines(root, file) if line.count("\t")]
    labelled = sorted((classes.index(label), n) for n, label, *_ in fields if label in classes)
    if not labelled:
        raise refuse_missing(
            "tinyimagenet", f"image of these classes in {root / FOLDER / file}", root
        )
    return [describe_photograph(str(folder / name), label) for label, name in labelled]
