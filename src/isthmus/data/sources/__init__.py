"""Data sets by name: frozen settings whose `load` gives arrays."""

from isthmus.data.sources.arrays import Source
from isthmus.data.sources.cifar import Cifar10, Cifar100
from isthmus.data.sources.digits import Digits
from isthmus.data.sources.distant import Sites
from isthmus.data.sources.femnist import Femnist
from isthmus.data.sources.files import Files
from isthmus.data.sources.folders import Folders
from isthmus.data.sources.imagenet import ImageNet
from isthmus.data.sources.mnist import Emnist, FashionMnist, Mnist
from isthmus.data.sources.shakespeare import Shakespeare
from isthmus.data.sources.synthetic import Synthetic
from isthmus.data.sources.table import Table
from isthmus.data.sources.tinyimagenet import TinyImageNet

SOURCES: dict[str, type[Source]] = {
    "digits": Digits,
    "mnist": Mnist,
    "fashion-mnist": FashionMnist,
    "emnist": Emnist,
    "cifar10": Cifar10,
    "cifar100": Cifar100,
    "tinyimagenet": TinyImageNet,
    "imagenet": ImageNet,
    "femnist": Femnist,
    "shakespeare": Shakespeare,
    "synthetic": Synthetic,
    "table": Table,
    "folders": Folders,
    "files": Files,
    "sites": Sites,
}
