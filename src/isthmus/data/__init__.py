"""Data sets, their division among clients, and the federation that holds both.

Data sets by name are frozen settings whose `load` gives arrays; partitions, frozen settings whose
`cut` says who gets which examples; label noise, frozen settings that say which labels change.
"""

from isthmus.system.plugins import Registry

SOURCES = Registry(
    "isthmus.data",
    {
        "digits": "isthmus.data.named.digits:Digits",
        "mnist": "isthmus.data.named.mnist:Mnist",
        "fashion-mnist": "isthmus.data.named.mnist:FashionMnist",
        "emnist": "isthmus.data.named.mnist:Emnist",
        "cifar10": "isthmus.data.named.cifar:Cifar10",
        "cifar100": "isthmus.data.named.cifar:Cifar100",
        "tinyimagenet": "isthmus.data.named.tinyimagenet:TinyImageNet",
        "imagenet": "isthmus.data.named.imagenet:ImageNet",
        "femnist": "isthmus.data.named.femnist:Femnist",
        "shakespeare": "isthmus.data.named.shakespeare:Shakespeare",
        "synthetic": "isthmus.data.named.synthetic:Synthetic",
        "hub": "isthmus.data.named.hub:Hub",
        "table": "isthmus.data.own.tables:Table",
        "folders": "isthmus.data.own.folders:Folders",
        "files": "isthmus.data.own.arrays:Files",
        "sites": "isthmus.data.own.sites:Sites",
    },
)

PARTITIONS = Registry(
    "isthmus.partitions",
    {
        "iid": "isthmus.data.partitions.plain:Iid",
        "pathological": "isthmus.data.partitions.plain:Pathological",
        "dirichlet-classwise": "isthmus.data.partitions.dirichlet:DirichletClasswise",
        "dirichlet-clientwise": "isthmus.data.partitions.dirichlet:DirichletClientwise",
        "dirichlet-hsu": "isthmus.data.partitions.dirichlet:DirichletHsu",
        "five-fold": "isthmus.data.partitions.groups:FiveFold",
        "semantic": "isthmus.data.partitions.groups:Semantic",
        "quantity": "isthmus.data.partitions.plain:Quantity",
        "natural": "isthmus.data.partitions.natural:Natural",
    },
)

NOISES = Registry(
    "isthmus.noises",
    {
        "none": "isthmus.data.label_noise:Clean",
        "pair": "isthmus.data.label_noise:Pair",
        "symmetric": "isthmus.data.label_noise:Symmetric",
        "kdd-code-noise": "isthmus.data.label_noise:KddCodeNoise",
    },
)
