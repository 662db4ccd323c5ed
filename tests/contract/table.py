"""All methods, one line each: what the contract test needs to know of them."""

from typing import Any, NamedTuple

from isthmus.models.flat import Flat

FLOAT = 4  # bytes


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
    limit: dict[str, Any]  # settings that make it ...
    simpler: dict[str, Any]  # ... this method


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
]
