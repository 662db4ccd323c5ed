"""All methods, one line each: what the contract test needs to know of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from isthmus.models.flat import Flat
from small import CLASSES, WIDTH

FLOAT = 4  # bytes
PROTOTYPES = FLOAT * CLASSES * (WIDTH + 1)  # and the examples behind each


class Wire(NamedTuple):
    """What crosses the wire for one client in one round."""

    models: int = 0  # vectors of all P parameters
    bodies: int = 0
    heads: int = 0
    nbytes: int = 0  # besides

    def total(self, model: Flat) -> int:
        body = model.body.stop
        head = model.size - body
        floats = self.models * model.size + self.bodies * body + self.heads * head
        return FLOAT * floats + self.nbytes


class Row(NamedTuple):
    """One method: its defaults, its wire, and the case in which it becomes a simpler one."""

    name: str
    defaults: dict[str, Any]  # as the specification gives them
    down: Wire  # what each client that is asked receives
    up: Wire  # and sends
    limit: dict[str, Any] | None  # settings that make it ...; None: a test of its own shows it
    simpler: dict[str, Any] | None = None  # ... this method
    within: float = 0.0  # largest difference between the two, where they round differently
    once: int = 0  # bytes that every client sends in the first round, whoever takes part
    options: Mapping[str, Any] = MappingProxyType({})  # so that few rounds show all of it

    @property
    def method(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}


ROWS = [
    Row(
        "local",
        {"budget": "full"},
        down=Wire(),
        up=Wire(nbytes=1),
        limit={"method": {"name": "local", "budget": "participation"}, "clients_per_round": 1},
        simpler={"method": "fedavg", "clients_per_round": 1},
    ),
    Row(
        "fedavg",
        {"tune": 0},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": "fedavg", "epochs": 4, "rounds": 1, "clients_per_round": 1},
        simpler={
            "method": {"name": "local", "budget": "participation"},
            "epochs": 4,
            "rounds": 1,
            "clients_per_round": 1,
        },
    ),
    Row(
        "fedavg-lu",
        {"tune": 1, "tune_lr": 0.01},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "fedavg-lu", "tune": 0}},
        simpler={"method": "fedavg"},
    ),
    Row(
        "fedprox",
        {"mu": 0.01, "tune": 0},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "fedprox", "mu": 0.0}},
        simpler={"method": "fedavg"},
    ),
    Row(
        "fedprox-lu",
        {"mu": 0.01, "tune": 1, "tune_lr": 0.01},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "fedprox-lu", "tune": 0}},
        simpler={"method": "fedprox"},
    ),
    Row(
        "superfed-mm",
        {"mix": "model", "start": 0.4, "mu": 0.01, "nu": 1.0, "local_init": "fresh_per_client"},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "superfed-mm", "start": 1.0, "mu": 0.0}},
        simpler={"method": "fedavg"},
    ),
    Row(
        "superfed-lm",
        {"mix": "layer", "start": 0.4, "mu": 0.01, "nu": 2.0, "local_init": "fresh_per_client"},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "superfed-lm", "start": 1.0, "mu": 0.01}},
        simpler={"method": {"name": "fedprox", "mu": 0.02}},
    ),
    Row(
        "floco",
        {"vertices": 7, "tau": 100, "rho": 0.1, "sampler": "uniform", "kappa_scale": "none"},
        down=Wire(models=1, nbytes=2 * 24 * FLOAT),  # two vertices more, of 8 x 3 weights
        up=Wire(models=1, nbytes=2 * 24 * FLOAT + FLOAT),
        limit={"method": {"name": "floco", "vertices": 1, "tau": 1}},
        simpler={"method": "fedavg"},
        options={"vertices": 3, "tau": 1},
    ),
    Row(
        "floco-plus",
        {"vertices": 7, "tau": 100, "rho": 0.1, "lam": 1.0, "pull": "all", "sampler": "uniform"},
        down=Wire(models=1, nbytes=2 * 24 * FLOAT),
        up=Wire(models=1, nbytes=2 * 24 * FLOAT + FLOAT),
        limit={"method": {"name": "floco-plus", "vertices": 3, "tau": 1}},
        simpler={"method": {"name": "floco", "vertices": 3, "tau": 1}},
        options={"vertices": 3, "tau": 1},
    ),
    Row(
        "fedsimsup",
        {
            "supervisors": ("auto",),
            "tau_s": 1,
            "c_beta": 40.0,
            "gamma": 3 / 7,
            "similarity": "labels",
            "arrangement": "parallel",
            "untrained": "silent",
        },
        down=Wire(models=1),
        up=Wire(models=1),
        limit={"method": {"name": "fedsimsup", "arrangement": "alone"}, "clients_per_round": 1},
        simpler={"method": "fedavg", "clients_per_round": 1},
        once=CLASSES * FLOAT,
    ),
    Row(
        "fedsimsup-tcl",
        {"supervisors": ("transformer", "cnn", "lenet5_sixth")},
        down=Wire(models=1),
        up=Wire(models=1),
        limit={"method": {"name": "fedsimsup-tcl", "supervisors": ["auto"]}},
        simpler={"method": "fedsimsup"},
        once=CLASSES * FLOAT,
        options={
            "supervisors": ["mlp hidden=3", "twonn hidden=4", "mlp hidden=5"],
            "supervisor_seed": 1,
        },
    ),
    Row(
        "scaffold",
        {"eta": 1.0, "momentum": 0.0},
        down=Wire(models=2),
        up=Wire(models=2),
        limit={"method": "scaffold", "rounds": 1, "clients_per_round": 1},
        simpler={"method": "fedavg", "rounds": 1, "clients_per_round": 1, "momentum": 0.0},
        within=1e-7,  # w + (y - w) is y but for the last bit
    ),
    Row("feddyn", {"a": 0.1}, down=Wire(models=1), up=Wire(models=1), limit=None),
    Row(
        "fedper",
        {},
        down=Wire(bodies=1),
        up=Wire(bodies=1, nbytes=FLOAT),
        limit={"method": "fedper", "clients_per_round": 1},
        simpler={"method": "fedavg", "clients_per_round": 1},
    ),
    Row(
        "lg-fedavg",
        {},
        down=Wire(heads=1),
        up=Wire(heads=1, nbytes=FLOAT),
        limit={"method": "lg-fedavg", "clients_per_round": 1},
        simpler={"method": "fedavg", "clients_per_round": 1},
    ),
    Row(
        "fedrep",
        {"head_epochs": 10, "body_epochs": 1},
        down=Wire(bodies=1),
        up=Wire(bodies=1, nbytes=FLOAT),
        limit={
            "method": {"name": "fedrep", "head_epochs": 0, "body_epochs": 2},
            "clients_per_round": 1,
        },
        simpler={"method": {"name": "fedbabu", "tune": 0}, "clients_per_round": 1},
    ),
    Row(
        "fedbabu",
        {"tune": 5},
        down=Wire(bodies=1),
        up=Wire(bodies=1, nbytes=FLOAT),
        limit={"method": {"name": "fedbabu", "tune": 0}, "clients_per_round": 1},
        simpler={
            "method": {"name": "fedrep", "head_epochs": 0, "body_epochs": 2},
            "clients_per_round": 1,
        },
    ),
    Row("fedrod", {}, down=Wire(models=1), up=Wire(models=1, nbytes=FLOAT), limit=None),
    Row(
        "fedbn",
        {},
        down=Wire(models=1),  # the small network has no normalisation layers
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": "fedbn", "clients_per_round": 1},
        simpler={"method": "fedavg", "clients_per_round": 1},
    ),
    Row(
        "apfl",
        {"alpha": 0.25, "adaptive": False},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "apfl", "alpha": 1.0}, "clients_per_round": 1},
        simpler={"method": {"name": "local", "budget": "participation"}, "clients_per_round": 1},
    ),
    Row(
        "pfedme",
        {"lam": 15.0, "inner": 5, "inner_lr": 0.01, "beta": 1.0},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit=None,
    ),
    Row(
        "ditto",
        {"lam": 1.0, "own_epochs": 5},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": "ditto"},
        simpler={"method": "fedavg"},
    ),
    Row(
        "fedala",
        {"layers": 1, "ala_lr": 1.0, "ala_epochs": 1},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "fedala", "ala_epochs": 0}},
        simpler={"method": "fedavg"},
    ),
    Row(
        "per-fedavg",
        {"variant": "first-order", "alpha": 0.01, "delta": 1e-3, "tune": 1},
        down=Wire(models=1),
        up=Wire(models=1),
        limit=None,
    ),
    Row(
        "fedproto",
        {"lam": 1.0, "predict": "prototype"},
        down=Wire(nbytes=PROTOTYPES),
        up=Wire(nbytes=PROTOTYPES),
        limit={
            "method": {"name": "fedproto", "lam": 0.0, "predict": "classifier"},
            "clients_per_round": 1,
        },
        simpler={
            "method": {"name": "local", "budget": "participation"},
            "clients_per_round": 1,
        },
    ),
    Row(
        "fedpac",
        {"lam": 1.0, "head_lr": 0.1},
        down=Wire(bodies=1, heads=1, nbytes=PROTOTYPES),
        up=Wire(bodies=1, heads=1, nbytes=PROTOTYPES + FLOAT * (CLASSES * WIDTH + 1)),
        limit={
            "method": {"name": "fedpac", "lam": 0.0},
            "clients_per_round": 1,
            "lr_decay": 1.0,  # so that head_lr is the learning rate
        },
        simpler={
            "method": {"name": "fedrep", "head_epochs": 1, "body_epochs": 2},
            "clients_per_round": 1,
            "lr_decay": 1.0,
        },
    ),
    Row(
        "pfedfda",
        {"beta": "fitted", "ridge": "released"},
        down=Wire(bodies=1, nbytes=FLOAT * WIDTH * (CLASSES + WIDTH)),
        up=Wire(bodies=1, nbytes=FLOAT * WIDTH * (CLASSES + WIDTH) + FLOAT),
        limit=None,
    ),
    Row(
        "fedas",
        {"align_epochs": 1, "align_lr": 0.01},
        down=Wire(bodies=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "fedas", "align_epochs": 0}, "clients_per_round": 1},
        simpler={
            "method": {"name": "local", "budget": "participation"},
            "clients_per_round": 1,
        },
    ),
    Row(
        "pfedsim",
        {"warmup": 0.5},
        down=Wire(models=1),
        up=Wire(models=1, nbytes=FLOAT),
        limit={"method": {"name": "pfedsim", "warmup": 1.0}},
        simpler={"method": "fedavg"},
        options={"warmup": 0.25},
    ),
    Row(
        "pooled",
        {},
        down=Wire(),
        up=Wire(),
        limit={"method": "pooled", "clients_per_round": 1},
        simpler={"method": "fedavg", "clients_per_round": 1},
    ),
]
