"""Methods by name. An entry is the method with its default hyper-parameters."""

from isthmus.method import Method
from isthmus.methods.fedavg import FedAvg
from isthmus.methods.fedprox import FedProx
from isthmus.methods.local import Local
from isthmus.methods.superfed import SuPerFed

METHODS: dict[str, Method] = {
    "local": Local(),
    "fedavg": FedAvg(),
    "fedavg-lu": FedAvg(tune=1),
    "fedprox": FedProx(),
    "fedprox-lu": FedProx(tune=1),
    "superfed-mm": SuPerFed(mix="model", nu=1.0),
    "superfed-lm": SuPerFed(mix="layer", nu=2.0),
}
