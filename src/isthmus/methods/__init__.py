"""Methods by name, one file each: an entry is the method with its default hyper-parameters."""

from isthmus.method import Method
from isthmus.methods.apfl import Apfl
from isthmus.methods.ditto import Ditto
from isthmus.methods.fedala import FedAla
from isthmus.methods.fedas import FedAs
from isthmus.methods.fedavg import FedAvg
from isthmus.methods.fedbabu import FedBabu
from isthmus.methods.fedbn import FedBn
from isthmus.methods.feddyn import FedDyn
from isthmus.methods.fedpac import FedPac
from isthmus.methods.fedper import FedPer
from isthmus.methods.fedproto import FedProto
from isthmus.methods.fedprox import FedProx
from isthmus.methods.fedrep import FedRep
from isthmus.methods.fedrod import FedRod
from isthmus.methods.fedsimsup.fedsimsup import FedSimSup
from isthmus.methods.floco.floco import Floco
from isthmus.methods.floco.floco_plus import FlocoPlus
from isthmus.methods.lgfedavg import LgFedAvg
from isthmus.methods.local import Local
from isthmus.methods.perfedavg import PerFedAvg
from isthmus.methods.pfedfda import PFedFda
from isthmus.methods.pfedme import PFedMe
from isthmus.methods.pfedsim import PFedSim
from isthmus.methods.pooled import PooledTraining
from isthmus.methods.scaffold import Scaffold
from isthmus.methods.superfed import SuPerFed

METHODS: dict[str, Method] = {
    "local": Local(),
    "fedavg": FedAvg(),
    "fedavg-lu": FedAvg(tune=1),
    "fedprox": FedProx(),
    "fedprox-lu": FedProx(tune=1),
    "superfed-mm": SuPerFed(mix="model", nu=1.0),
    "superfed-lm": SuPerFed(mix="layer", nu=2.0),
    "floco": Floco(),
    "floco-plus": FlocoPlus(),
    "fedsimsup": FedSimSup(),
    "fedsimsup-tcl": FedSimSup(supervisors=("transformer", "cnn", "lenet5_sixth")),
    "scaffold": Scaffold(),
    "feddyn": FedDyn(),
    "fedper": FedPer(),
    "lg-fedavg": LgFedAvg(),
    "fedrep": FedRep(),
    "fedbabu": FedBabu(),
    "fedrod": FedRod(),
    "fedbn": FedBn(),
    "apfl": Apfl(),
    "pfedme": PFedMe(),
    "ditto": Ditto(),
    "fedala": FedAla(),
    "per-fedavg": PerFedAvg(),
    "fedproto": FedProto(),
    "fedpac": FedPac(),
    "pfedfda": PFedFda(),
    "fedas": FedAs(),
    "pfedsim": PFedSim(),
    "pooled": PooledTraining(),
}
