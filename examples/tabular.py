"""Your own table: a CSV file with a column of classes and one that says whose each row is.

Here: patients of six hospitals. In two of them the drug works the other way round, so that the
model that all share is wrong there. At the command line the same is
`isthmus run --data patients.csv --set label=outcome --set client=hospital`.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

from isthmus import Experiment, federate

rng = np.random.default_rng(0)
hospitals = ["Aalen", "Bergen", "Cork", "Delft", "Evora", "Fano"]
folder = tempfile.TemporaryDirectory()
table = Path(folder.name) / "patients.csv"
with table.open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["age", "dose", "smoker", "hospital", "outcome"])
    for _ in range(600):
        hospital, dose = rng.choice(hospitals), rng.normal(5, 2)
        better = (dose > 5) != (hospital in ("Cork", "Fano"))
        row = [rng.integers(20, 90), round(dose, 2), rng.choice(["yes", "no"]), hospital]
        rows.writerow([*row, "better" if better else "worse"])

experiment = Experiment(
    method="superfed-mm",
    data={"name": "table", "path": str(table), "label": "outcome", "client": "hospital"},
    rounds=15,
    epochs=5,
    lr=0.05,
    seed=1,
)
run = federate(experiment)
print(run)

personal, shared = (run.evaluation(model).figures.top1 for model in ("personal", "shared"))
for name, own, common in zip(run.setting.federation.names, personal, shared, strict=True):
    print(f"{name:<7} personal {own:.1%}  shared {common:.1%}")
folder.cleanup()
