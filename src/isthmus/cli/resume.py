"""The command resume."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import compare
from isthmus.cli.options import DataRoot, Jobs, Ray, SendData, Track, Workers, read_cluster
from isthmus.errors import IsthmusError


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run or a comparison.")],
    rounds: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Extend the run to this number of rounds."),
    ] = None,
    data_root: DataRoot = Path("data"),
    track: Track = None,
    workers: Workers = None,
    jobs: Jobs = None,
    ray: Ray = None,
    send_data: SendData = False,
) -> None:
    """Resume a run or comparison that was stopped or killed; results are bit-identical.

    Examples, one per line:

    `isthmus resume first`

    `isthmus resume first --ray 10.0.0.1:6379` (continue on a cluster)

    `isthmus resume first --rounds 80` (extend the run, if its method allows it)
    """
    from isthmus.batch.grid import is_comparison
    from isthmus.cli import messages

    cluster = read_cluster(ray, send_data)
    if is_comparison(run):
        for name, given in {"rounds": rounds, "track": track, "workers": workers}.items():
            if given:
                raise IsthmusError(
                    f"--{name} applies to a single run, and {run} is a comparison; leave it out"
                )
        compare.go_on(run, data_root, jobs, cluster)
        return
    if jobs is not None:
        raise IsthmusError(
            f"--jobs applies to a comparison, and {run} is a single run; use --workers"
        )
    from isthmus.cli import driver  # it loads torch

    done = driver.conduct(
        run,
        data_root=data_root,
        rounds=rounds,
        track=track or (),
        workers=workers,
        cluster=cluster,
    )
    messages.print_result(done, run)
