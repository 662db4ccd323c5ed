"""Your own time series: windows of a sensor's readings per machine, and a network of your own.

Every machine hums at a pitch of its own. What is to be told from a window of two channels is
whether it runs smoothly, knocks, or drifts.
"""

import numpy as np
from torch import Tensor, nn

from isthmus import Experiment, Federation, federate

STATES, MACHINES, LENGTH = ("smooth", "knocking", "drifting"), 8, 32
rng = np.random.default_rng(0)
pitch = rng.uniform(0.2, 1.2, MACHINES)


def series(machine: int, state: int, steps: int) -> np.ndarray:
    """Return a reading of a machine in one state, [2, steps]."""
    t = np.arange(steps) + rng.uniform(0, 100)
    hum = np.sin(pitch[machine] * t)
    knock = 2.0 * (rng.random(steps) < 0.15) if state == 1 else 0
    drift = np.linspace(0, 12, steps) % 3 if state == 2 else 0
    return np.stack([hum + knock, 0.5 * hum + drift]) + 0.3 * rng.standard_normal((2, steps))


windows, labels, machines = [], [], []
for machine in range(MACHINES):
    for state in range(len(STATES)):
        recorded = series(machine, state, steps=25 * LENGTH)
        windows += np.split(recorded, 25, axis=1)  # that do not overlap: nothing is tested twice
        labels += [state] * 25
        machines += [f"machine {machine}"] * 25


class Windows(nn.Module):
    """Two convolutions over time, the mean of what they find, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(2, 12, 5, padding=2), nn.ReLU(), nn.Conv1d(12, 12, 5, padding=2), nn.ReLU()
        )
        self.classifier = nn.Linear(12, len(STATES))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.body(x).mean(2))
        return logits


data = Federation.of(
    np.stack(windows).astype(np.float32), np.array(labels), machines, labels=STATES, seed=1
)
experiment = Experiment(method="superfed-mm", data="own", rounds=15, epochs=3, lr=0.05, seed=1)
run = federate(experiment, data=data, model=Windows)
print(run)
for name, top1 in zip(data.names, run.evaluation("personal").figures.top1, strict=True):
    print(f"{name}: {top1:.1%}")
