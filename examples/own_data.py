"""Your own data: arrays, and whose each example is.

Here: readings from seven workshops. Each labels its machines' states by a habit of its own, so that
no single model can serve all of them.
"""

import numpy as np

from isthmus import Experiment, Federation, federate

rng = np.random.default_rng(0)
names = np.array(["Aalen", "Bergen", "Cork", "Delft", "Evora", "Fano", "Ghent"])
habits = np.array([rng.permutation(3) for _ in names])
workshop, condition = rng.integers(len(names), size=700), rng.integers(3, size=700)
readings = rng.normal(loc=condition[:, None], size=(700, 12)).astype(np.float32)
labels = habits[workshop, condition]

data = Federation.of(readings, labels, clients=names[workshop], seed=1)
experiment = Experiment(
    method="superfed-mm", data="own", rounds=25, epochs=5, clients_per_round=3, lr=0.02
)
run = federate(experiment, data=data)
print(run)

scores = run.evaluation("personal")
for i, name in enumerate(names):  # client 0 is the first name in sorted order
    print(f"{name:<7} lambda {scores.at[i, 0]:.1f}  test top-1 {scores.figures.top1[i]:.1%}")
