"""Partitions by name: each is a frozen setting whose `cut` says who gets which examples."""

from isthmus.data.partitions.dirichlet import DirichletClasswise, DirichletClientwise, DirichletHsu
from isthmus.data.partitions.division import Division, Partition
from isthmus.data.partitions.groups import FiveFold, Semantic
from isthmus.data.partitions.natural import Natural
from isthmus.data.partitions.plain import Iid, Pathological, Quantity

__all__ = ["PARTITIONS", "Division", "Natural", "Partition"]

PARTITIONS: dict[str, type[Partition]] = {
    "iid": Iid,
    "pathological": Pathological,
    "dirichlet-classwise": DirichletClasswise,
    "dirichlet-clientwise": DirichletClientwise,
    "dirichlet-hsu": DirichletHsu,
    "five-fold": FiveFold,
    "semantic": Semantic,
    "quantity": Quantity,
    "natural": Natural,
}
