"""What statistics of one's own bring to the points of a path: `python -m benchmarks.statistics`.

SuPerFed-MM trains a small convolutional network with ordinary BatchNorm on bundled digits. Every
client's path is then measured twice on its test part: with the statistics that each point has on
the client's training examples, and with those of the two ends, mixed.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import isthmus
from isthmus import Experiment, federate
from isthmus.client import Point
from isthmus.run.open import Opened


def network() -> nn.Module:
    """Two convolutions, each normalised, and a linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )


def measure(opened: Opened, i: int, models: Tensor) -> Tensor:
    """Return the share of client i's test examples that each model has right."""
    setting = opened.setting
    x, y, *_ = setting.federation.split(i, "test")
    with torch.no_grad():
        logits = torch.stack([setting.task.model.logits(w, x) for w in models])
    return (logits.argmax(2) == y).double().mean(1)


def mix_ends(path: Point) -> Tensor:
    """Return the points of a path, their statistics mixed like their parameters."""
    return torch.lerp(path.w[0], path.w[-1], path.at)


def main() -> None:
    """Train, measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    wanted = parser.parse_args()
    for seed in range(1, wanted.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            experiment = Experiment(
                method="superfed-mm", data="digits", rounds=wanted.rounds, seed=seed
            )
            federate(experiment, model=network, out=out)
            with isthmus.open(out, model=network) as opened:
                paths = [(i, path) for i in range(len(opened)) if (path := opened.path(i))]
                own = torch.stack([measure(opened, i, path.w) for i, path in paths])
                mixed = torch.stack([measure(opened, i, mix_ends(path)) for i, path in paths])
        print(f"seed {seed}: top-1 on {len(paths)} clients' test parts, mean, at lambda")
        for name, rows in (("own", own), ("mixed", mixed)):
            print(f"  {name:6}", *(f"{value:6.1%}" for value in rows.mean(0).tolist()))


if __name__ == "__main__":
    main()
