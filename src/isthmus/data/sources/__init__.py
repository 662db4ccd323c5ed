"""Data sets by name: frozen settings whose `load` gives arrays."""

from isthmus.data.sources.digits import Digits
from isthmus.data.sources.mnist import Mnist
from isthmus.data.sources.synthetic import Synthetic

SOURCES: dict[str, type[Digits] | type[Mnist] | type[Synthetic]] = {
    "digits": Digits,
    "mnist": Mnist,
    "synthetic": Synthetic,
}
