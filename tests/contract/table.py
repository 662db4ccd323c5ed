"""All methods, one line each: what the contract test needs to know of them."""

from typing import Any, NamedTuple

FLOAT = 4  # bytes


class Row(NamedTuple):
    """One method: its defaults, its wire, and the case in which it becomes a simpler one."""

    name: str
    defaults: dict[str, Any]  # as the specification gives them
    down: tuple[int, int]  # what each client receives: (vectors of P parameters, further bytes)
    up: tuple[int, int]
    limit: dict[str, Any]  # settings that make it ...
    simpler: dict[str, Any]  # ... this method


ROWS = [
    Row(
        "local",
        {"budget": "full"},
        down=(0, 0),
        up=(0, 1),
        limit={"method": {"name": "local", "budget": "participation"}, "clients_per_round": 1},
        simpler={"method": "fedavg", "clients_per_round": 1},
    ),
    Row(
        "fedavg",
        {"tune": 0},
        down=(1, 0),
        up=(1, FLOAT),
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
        down=(1, 0),
        up=(1, FLOAT),
        limit={"method": {"name": "fedavg-lu", "tune": 0}},
        simpler={"method": "fedavg"},
    ),
    Row(
        "fedprox",
        {"mu": 0.01, "tune": 0},
        down=(1, 0),
        up=(1, FLOAT),
        limit={"method": {"name": "fedprox", "mu": 0.0}},
        simpler={"method": "fedavg"},
    ),
    Row(
        "fedprox-lu",
        {"mu": 0.01, "tune": 1, "tune_lr": 0.01},
        down=(1, 0),
        up=(1, FLOAT),
        limit={"method": {"name": "fedprox-lu", "tune": 0}},
        simpler={"method": "fedprox"},
    ),
    Row(
        "superfed-mm",
        {"mix": "model", "start": 0.4, "mu": 0.01, "nu": 1.0, "local_init": "fresh_per_client"},
        down=(1, 0),
        up=(1, FLOAT),
        limit={"method": {"name": "superfed-mm", "start": 1.0, "mu": 0.0}},
        simpler={"method": "fedavg"},
    ),
    Row(
        "superfed-lm",
        {"mix": "layer", "start": 0.4, "mu": 0.01, "nu": 2.0, "local_init": "fresh_per_client"},
        down=(1, 0),
        up=(1, FLOAT),
        limit={"method": {"name": "superfed-lm", "start": 1.0, "mu": 0.01}},
        simpler={"method": {"name": "fedprox", "mu": 0.02}},
    ),
]
