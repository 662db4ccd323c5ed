"""The command run."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import (
    Data,
    DataRoot,
    File,
    Preset,
    Ray,
    Rounds,
    Seed,
    SendData,
    Settings,
    Track,
    Workers,
    read_cluster,
    read_experiment,
)


def run(
    file: File = None,
    method: Annotated[str | None, typer.Option(help="A name from `isthmus list methods`.")] = None,
    data: Data = None,
    rounds: Rounds = None,
    seed: Seed = None,
    preset: Preset = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Output directory [default: runs/DATA-METHOD-SEED]."),
    ] = None,
    data_root: DataRoot = Path("data"),
    sync: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="Flush to disk after every `round`, or leave it to the operating `system` (a "
            "power failure may lose rounds).",
        ),
    ] = "round",
    track: Track = None,
    workers: Workers = None,
    ray: Ray = None,
    send_data: SendData = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print at the end where the time of a round went.")
    ] = False,
    keep_best: Annotated[
        bool | None,
        typer.Option(
            "--keep-best/--no-keep-best",
            help="Also keep each client's best model on validation data [default: if all of them "
            "take less than 1 GB].",
        ),
    ] = None,
) -> None:
    """Run one experiment, print its results, keep its records.

    Examples, one per line:

    `isthmus run --method superfed-mm --data digits --rounds 40 --out first`

    `isthmus run --method fedprox --data digits --set mu=0.1 --set partition=iid`

    `isthmus run --method superfed-lm --data mnist --data-root ~/data`

    `isthmus run --method fedavg --data mnist --ray 10.0.0.1:6379` (on a cluster)

    `isthmus run first/experiment.toml` (the same run again, with the same digest)
    """
    from isthmus.cli import driver, messages

    named = {"method": method, "data": data, "rounds": rounds, "seed": seed, "preset": preset}
    experiment = read_experiment(file, named, settings)
    # Cut, since the name of a directory has 255 bytes at most.
    source = Path(experiment.data.get("path", "")).stem[:50] or experiment.data["name"]
    name = f"{source}-{experiment.method['name']}-{experiment.seed}"
    where = out or driver.find_free(Path("runs") / name)
    done = driver.conduct(
        where,
        experiment,
        data_root=data_root,
        sync=sync,
        track=track or (),
        workers=workers,
        profile=profile,
        keep_best=keep_best,
        cluster=read_cluster(ray, send_data),
    )
    messages.print_result(done, where)
