"""Where the data sets come from that do not come with isthmus, and where they are expected.

Checksums and sizes are those of the publishers (MD5 is what they publish): they guard against
damage, and against a mirror that gives something else. Mirrors are tried in order.
"""

from pathlib import Path
from typing import Literal, NamedTuple

Form = Literal["idx", "femnist", "shakespeare"]


class OriginFile(NamedTuple):
    """One file of a data set: where it goes below the data root, and where it comes from."""

    path: str
    md5: str
    nbytes: int
    mirrors: tuple[str, ...]


class Origin(NamedTuple):
    """One data set: what it is, where it may lie below the data root, how it is got."""

    what: str
    licence: str
    places: tuple[tuple[str, ...], ...]  # any of them is enough: patterns that all have a file
    files: tuple[OriginFile, ...] = ()
    unpacks: str = ""  # the folder that its archive holds, where it is not read as it is
    hub: str = ""  # what the Hugging Face hub calls it
    hub_form: Form = "idx"  # how hub.py writes it
    by_hand: str = ""  # what to do where nobody publishes the files

    @property
    def nbytes(self) -> int:
        """The size of its files as they are sent; 0 where it is not known."""
        return sum(file.nbytes for file in self.files)

    def find(self, root: Path) -> Path | None:
        """Find the first of its files below the data root, if a whole set of them is there."""
        for place in self.places:
            first = [
                min((path for path in root.glob(pattern) if path.suffix != ".part"), default=None)
                for pattern in place
            ]
            if all(first):
                return first[0]
        return None


def _files(
    folder: str, mirrors: tuple[str, ...], *files: tuple[str, str, int]
) -> tuple[OriginFile, ...]:
    """Lists files of a folder by (name, MD5, bytes), which every mirror has under that name."""
    return tuple(
        OriginFile(f"{folder}{name}", md5, nbytes, tuple(f"{url}/{name}" for url in mirrors))
        for name, md5, nbytes in files
    )


IDX = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
EMNIST = tuple(
    f"emnist-byclass-{part}-{kind}-ubyte*"
    for part in ("train", "test")
    for kind in ("images-idx3", "labels-idx1")
)
LEAF = (
    *(("{}/data/train/*.json*", "{}/data/test/*.json*"), ("{}/data/all_data/*.json*",)),
    *(("{}/train/*.json*", "{}/test/*.json*"), ("{}/all_data/*.json*",)),
)


def _below(folder: str, *places: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(pattern.format(folder) for pattern in place) for place in places)


ORIGINS: dict[str, Origin] = {
    "mnist": Origin(
        "MNIST, 70,000 handwritten digits, 1x28x28",
        "CC BY-SA 3.0",
        (tuple(f"mnist/{name}*" for name in IDX), tuple(f"{name}*" for name in IDX)),
        _files(
            "mnist/",
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "https://storage.googleapis.com/cvdf-datasets/mnist",
                "http://yann.lecun.com/exdb/mnist",
            ),
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
        hub="ylecun/mnist",
    ),
    "fashion-mnist": Origin(
        "Fashion-MNIST, 70,000 articles of clothing, 1x28x28",
        "MIT",
        (tuple(f"fashion-mnist/{name}*" for name in IDX),),
        _files(
            "fashion-mnist/",
            (
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            ),
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
        hub="zalando-datasets/fashion_mnist",
    ),
    "emnist": Origin(
        "EMNIST by class, 814,255 handwritten characters, 1x28x28",
        "public domain",
        (
            *((f"{folder}gzip.zip",) for folder in ("emnist/", "")),
            *(
                tuple(f"{folder}{name}" for name in EMNIST)
                for folder in ("emnist/", "emnist/gzip/", "gzip/", "")
            ),
        ),
        _files(
            "emnist/",
            (
                "https://biometrics.nist.gov/cs_links/EMNIST",
                "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST",
            ),
            ("gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e", 561_753_746),
        ),
    ),
    "cifar10": Origin(
        "CIFAR-10, 60,000 photographs, 3x32x32, ten classes",
        "none stated",
        (("cifar-10-batches-py/*_batch*",), ("cifar-10-python.tar.gz",)),
        _files(
            "",
            ("https://www.cs.toronto.edu/~kriz", "https://cave.cs.toronto.edu/kriz"),
            ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),
        ),
    ),
    "cifar100": Origin(
        "CIFAR-100, 60,000 photographs, 3x32x32, 100 classes",
        "none stated",
        (("cifar-100-python/train", "cifar-100-python/test"), ("cifar-100-python.tar.gz",)),
        _files(
            "",
            ("https://www.cs.toronto.edu/~kriz", "https://cave.cs.toronto.edu/kriz"),
            ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
        ),
    ),
    "tinyimagenet": Origin(
        "Tiny ImageNet, 110,000 photographs, 3x64x64, 200 classes",
        "ImageNet's terms, research only",
        (("tiny-imagenet-200/wnids.txt", "tiny-imagenet-200/train", "tiny-imagenet-200/val"),),
        _files(
            "",
            ("http://cs231n.stanford.edu", "https://cs231n.stanford.edu"),
            ("tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043),
        ),
        unpacks="tiny-imagenet-200",
    ),
    "imagenet": Origin(
        "ImageNet (ILSVRC 2012), 1.3 million photographs, 1,000 classes",
        "ImageNet's terms, research only",
        (("imagenet/train/n*", "imagenet/val/n*"),),
        by_hand="ask for access at https://image-net.org and unpack its images, a folder per "
        "class, into imagenet/train and imagenet/val",
    ),
    "femnist": Origin(
        "FEMNIST, some 810,000 characters of 3,600 writers, 1x28x28, a client per writer",
        "BSD 2-Clause (LEAF)",
        (("femnist/femnist.npz",), *_below("femnist", *LEAF)),
        hub="flwrlabs/femnist",
        hub_form="femnist",
        by_hand="run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.8 in data/femnist of "
        "https://github.com/TalwalkarLab/leaf and put its folder data into femnist",
    ),
    "shakespeare": Origin(
        "Shakespeare, 4.2 million windows of 80 characters, a client per role",
        "BSD 2-Clause (LEAF)",
        (("shakespeare/roles.json*",), *_below("shakespeare", *LEAF)),
        hub="flwrlabs/shakespeare",
        hub_form="shakespeare",
        by_hand="run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.9 in data/shakespeare "
        "of https://github.com/TalwalkarLab/leaf and put its folder data into shakespeare",
    ),
}
