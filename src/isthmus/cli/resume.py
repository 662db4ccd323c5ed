"""The command resume."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import compare
from isthmus.cli.options import DataRoot, Jobs, Ray, SendData, Track, Workers, read_cluster
from isthmus.errors import IsthmusError


def resume(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The directory of a run, or of a comparison.")
    ],
    rounds: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Make the run longer: rounds in all.")
    ] = None,
    data_root: DataRoot = Path("data"),
    track: Track = None,
    workers: Workers = None,
    jobs: Jobs = None,
    ray: Ray = None,
    send_data: SendData = False,
) -> None:
    """Goes on with a run, or a comparison, that was stopped or killed: to the same digest.

    Examples, one per line:

    `isthmus resume first`

    `isthmus resume first --ray 10.0.0.1:6379` goes on on a cluster, wherever it began.

    `isthmus resume first --rounds 80` makes a run longer, if its method allows it.
    """
    from isthmus.batch.grid import is_comparison
    from isthmus.cli import messages
    from isthmus.experiment.settings import read_rounds

    longer = read_rounds(rounds) if rounds else None
    cluster = read_cluster(ray, send_data)
    if is_comparison(run):
        for name, given in {"rounds": rounds, "track": track, "workers": workers}.items():
            if given:
                raise IsthmusError(
                    f"--{name}, but {run} is a comparison; expected a single run; leave it out"
                )
        compare.go_on(run, data_root, jobs, cluster)
        return
    if jobs is not None:
        raise IsthmusError(
            f"--jobs {jobs}, but {run} is no comparison; expected one; a run takes --workers"
        )
    from isthmus.cli import driver  # it loads torch

    done = driver.conduct(
        run,
        data_root=data_root,
        rounds=longer,
        track=track or (),
        workers=workers,
        cluster=cluster,
    )
    messages.print_result(done, run)
