"""The command rehearse."""

import time
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import (
    Data,
    DataRoot,
    File,
    Rounds,
    Seed,
    Settings,
    read_experiment,
    require_sites,
)


def rehearse(
    file: File = None,
    method: Annotated[str | None, typer.Option(help="See `isthmus list methods`.")] = None,
    data: Data = None,
    rounds: Rounds = None,
    sites: Annotated[
        int | None, typer.Option(min=2, help="Number of sites, a client each.")
    ] = None,
    seed: Seed = None,
    settings: Settings = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Output directory.")] = Path("rehearsal"),
    data_root: DataRoot = Path("data"),
) -> None:
    """Rehearse a deployment on this machine: server and sites as processes, over loopback.

    Examples, one per line:

    `isthmus rehearse --method superfed-mm --data digits --rounds 4 --sites 3`

    `isthmus rehearse --method fedavg --data patients.csv --rounds 4`

    Keys, requests, packages, consent, then the run itself; it compares the server and every site
    with the simulation, to the bit. Exit code 1: they differ.
    """
    require_sites("rehearse")
    from isthmus.cli import messages
    from isthmus.run.build import read_federation
    from isthmus_sites.rehearsal import rehearse as play

    extra = [f"clients={sites}", f"clients_per_round={sites}"] if sites is not None else []
    named = {"method": method, "data": data, "rounds": rounds, "seed": seed}
    experiment = read_experiment(file, named, [*extra, *(settings or ())])
    began = time.monotonic()

    def tell(text: str) -> None:
        messages.print_line(f"{time.monotonic() - began:6.1f} s  {text}")

    verdict = play(experiment, read_federation(experiment, data_root), out, tell)
    print(f"deployed   {verdict.deployed}")
    print(f"simulated  {verdict.simulated}")
    if verdict.missed:
        print(f"missing answers, in both: {verdict.missed}; see calls.csv of the run")
    if verdict.identical:
        print("the server, and every site, came to the bits of the simulation")
        return
    print(f"they differ; sites with other own states: {', '.join(verdict.differing) or 'none'}")
    raise typer.Exit(1)
