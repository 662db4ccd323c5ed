"""Data sets by name: frozen settings whose `load` gives arrays."""

from isthmus.data.arrays import Source
from isthmus.data.named.cifar import Cifar10, Cifar100
from isthmus.data.named.digits import Digits
from isthmus.data.named.femnist import Femnist
from isthmus.data.named.imagenet import ImageNet
from isthmus.data.named.mnist import Emnist, FashionMnist, Mnist
from isthmus.data.named.shakespeare import Shakespeare
from isthmus.data.named.synthetic import Synthetic
from isthmus.data.named.tinyimagenet import TinyImageNet
from isthmus.data.own.arrays import Files
from isthmus.data.own.folders import Folders
from isthmus.data.own.sites import Sites
from isthmus.data.own.tables import Table

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
