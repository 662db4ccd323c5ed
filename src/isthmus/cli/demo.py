"""The command demo."""

from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli import messages
from isthmus.cli.landscape import landscape
from isthmus.cli.report import report
from isthmus.errors import IsthmusError

DEMO: dict[str, dict[str, Any]] = {
    "local": {},
    "fedavg": {},
    "superfed-mm": {},
    "superfed-lm": {},
    "floco": {"vertices": 5, "tau": 20},
    "fedsimsup": {},
}
DEMO_SETTINGS: dict[str, Any] = {
    "data": "digits",
    "partition": {"name": "pathological", "shards": 2},
    "rounds": 50,
    "epochs": 5,
    "lr": 0.05,
    "eval_every": 5,
}


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Output directory for the page and the records.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed; it also divides the digits among clients.")] = 11,
) -> None:
    """Train six methods on bundled digits, print a table, write a page.

    Twenty clients hold two kinds of handwritten digits each and end with a model of their own. The
    page shows what sharing brought each of them, the loss between and around its two models, the
    clients in FLOCO's simplex, and what each of FedSimSup's two networks knows. It takes less than
    a minute on two cores.

    Example: `isthmus demo --out demo`
    """
    from isthmus.batch.named_runs import NamedRun
    from isthmus.cli.driver import find_free
    from isthmus.cli.progress import open_batch
    from isthmus.experiment.settings import Experiment

    folder = find_free(out)
    runs = []
    for method, options in DEMO.items():
        chosen = {"name": method, **options}
        experiment = Experiment(method=chosen, seed=seed, **DEMO_SETTINGS)
        runs.append(NamedRun(method, experiment, folder / method))
    try:
        rounds = dict.fromkeys(DEMO, DEMO_SETTINGS["rounds"])
        with open_batch(rounds, Path("data"), None) as (batch, board):
            for run, failure in batch.run(runs, board):
                if failure is not None:
                    raise IsthmusError(f"{run.name}: {failure.why}")
    except KeyboardInterrupt:
        messages.exit_stopped("stopped")
    for method in ("superfed-mm", "floco"):
        landscape(folder / method)
    report([folder / method for method in DEMO], folder / "report.html")
