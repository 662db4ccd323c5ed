"""Times our engine beside the plain loop and other frameworks: `make bench`.

    python -m benchmarks speed W1 W1s --rounds 5 --data-root data --json speed.json --docs

All contenders of a work are alive at once and take turns round by round; the first round of each
warms up and is not counted. Medians and their ratios are printed. The works are in
`benchmarks.works`; besides, `cohort` compares 5 with 100 clients a round of W1, `memory` adds up
what W2s takes, `evaluation` compares evaluating all clients with training some of them, `startup`
waits for the first thing to see. The frameworks get virtual environments of their own in
benchmarks/.envs when they are first needed. A checkout of another commit takes part with
`--before`, by benchmarks of its own: `git worktree add before HEAD~1`.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks import evaluation, memory, startup
from benchmarks.contenders import (
    CORES,
    FIRST,
    Contender,
    Ours,
    prepare_run,
    start_checkout,
    start_framework,
)
from benchmarks.environments import PeerError
from benchmarks.networks import NETWORKS
from benchmarks.plain import Plain
from benchmarks.results import (
    ALONE,
    BEFORE,
    DOCUMENT,
    FEDAVG,
    ON_RAY,
    OURS,
    PEERS,
    PLAIN,
    Result,
    compute_ratios,
    describe_hardware,
    make_table,
    write_json,
    write_page,
)
from benchmarks.works import WORKS, is_real, read_data
from isthmus.engines.base import Cluster

progress = Console(stderr=True)

OTHERS = {"memory": memory.measure, "evaluation": evaluation.measure, "startup": startup.measure}


class Company(NamedTuple):
    """Who takes part besides our engine in processes and on Ray."""

    frameworks: bool = True
    plain: bool = True  # and ours in one process, and our FedAvg
    before: Path | None = None  # a checkout of another commit


def start_contenders(
    name: str, root: Path, rounds: int, company: Company, changes: Mapping[str, Any]
) -> tuple[dict[str, Contender], list[str]]:
    """Start all contenders of a work, and note which could not be started."""
    work, notes = WORKS[name], list[str]()
    experiment = work.experiment(**changes)
    data = read_data(experiment, root)
    if not is_real(experiment, root):
        notes.append(f"{work.title}: on noise of the same shape, as the files are not in {root}")
    _, setting = prepare_run(experiment, data, workers=CORES)
    contenders: dict[str, Contender] = {OURS: Ours(setting)}
    if work.is_fedavg and find_spec("ray"):
        on_ray = prepare_run(experiment, data, workers=CORES, cluster=Cluster("local"))
        contenders[ON_RAY] = Ours(on_ray[1])
    if company.before is not None:
        contenders[BEFORE] = start_checkout(company.before, name, root, rounds, changes)
    if not company.plain:
        return contenders, notes
    contenders[ALONE] = Ours(prepare_run(experiment, data, workers=1)[1])
    if not work.is_fedavg:
        plainer = work.experiment(method="fedavg", **changes)
        contenders[FEDAVG] = Ours(prepare_run(plainer, data, workers=CORES)[1])
    if work.network:
        for processes, name in PLAIN.items():
            contenders[name] = Plain(setting, NETWORKS[work.network], processes, FIRST)
    for framework, title in PEERS.items() if company.frameworks and work.peers else ():
        try:
            contenders[title] = start_framework(framework, setting, work.network, rounds)
        except PeerError as error:
            notes.append(str(error))
    return contenders, notes


def time_rounds(
    contenders: Mapping[str, Contender], rounds: int, title: str
) -> tuple[dict[str, float], list[str]]:
    """Let contenders take turns; give the median of each, without the first round.

    A framework that fails is left out, with a note that has its error.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    notes = []
    try:
        with progress.status(title) as status:
            for number in range(rounds + 1):
                for name in list(seconds):
                    turn = f"round {number} of {rounds}" if number else "warming up"
                    status.update(f"{title}: {turn}, {name}")
                    began = time.perf_counter()
                    try:
                        contenders[name].round()
                    except PeerError as error:
                        notes.append(str(error))
                        del seconds[name]
                    else:
                        seconds[name] += [time.perf_counter() - began] if number else []
    finally:
        for contender in contenders.values():
            contender.close()
    return {name: median(each) for name, each in seconds.items()}, notes


def compare(name: str, root: Path, rounds: int, company: Company, **changes: Any) -> Result:
    """Time one of the works, perhaps with some settings changed."""
    with progress.status(f"{name}: starting"):
        contenders, notes = start_contenders(name, root, rounds + 1, company, changes)
    seconds, failed = time_rounds(contenders, rounds, name)
    return Result(WORKS[name].title, seconds, compute_ratios(seconds), notes + failed)


def compare_cohorts(root: Path, rounds: int, sizes: tuple[int, int] = (5, 100)) -> Result:
    """Time rounds of few and of many clients."""
    experiments = {size: WORKS["W1"].experiment(clients_per_round=size) for size in sizes}
    data = read_data(experiments[sizes[0]], root)
    contenders = {
        f"{size} clients a round": Ours(prepare_run(experiment, data, workers=CORES)[1])
        for size, experiment in experiments.items()
    }
    seconds, _ = time_rounds(contenders, rounds, "cohort")
    few, many = (each / size for each, size in zip(seconds.values(), sizes, strict=True))
    row = f"a client's time, {sizes[1]} a round / {sizes[0]} a round"
    return Result("W1 with cohorts of 5 and of 100 clients", seconds, {row: many / few})


def main(arguments: Sequence[str]) -> None:
    """Measure the works that are named, print the results, write them to files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [*WORKS, "cohort", *OTHERS]
    parser.add_argument("works", nargs="*", metavar="work", help=f"of {', '.join(known)}; or all")
    parser.add_argument("--rounds", type=int, default=5, help="that are counted")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--json", type=Path, help="a file to write")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--ours", action="store_true", help="nobody else: in processes, on Ray")
    parser.add_argument("--epochs", type=int, help="other than ten; clients are shorter with less")
    parser.add_argument("--before", type=Path, help="a checkout of another commit, to take part")
    parser.add_argument("--docs", action="store_true", help=f"write {DOCUMENT.name}")
    wanted = parser.parse_args(arguments)
    for name in wanted.works:
        if name not in known:
            parser.error(f"no work is called {name!r}; expected some of {', '.join(known)}")
    if wanted.before and not (wanted.before / "benchmarks" / "works.py").is_file():
        parser.error(f"--before {wanted.before} is no checkout of isthmus; expected one; make it")
    if wanted.rounds < 1:
        parser.error(f"--rounds {wanted.rounds}; expected at least one; raise it")
    machine, results = describe_hardware(), dict[str, Result]()
    for name in wanted.works or known:
        if name == "cohort":
            results[name] = compare_cohorts(wanted.data_root, wanted.rounds)
        elif name in OTHERS:
            with progress.status(name):
                results[name] = OTHERS[name](wanted.data_root, wanted.rounds)
        else:
            company = Company(wanted.peers, not wanted.ours, wanted.before)
            changes = {"epochs": wanted.epochs} if wanted.epochs else {}
            results[name] = compare(name, wanted.data_root, wanted.rounds, company, **changes)
        if wanted.json:  # what is done is kept, whatever happens to the rest
            wanted.json.write_text(write_json(results, machine, wanted.rounds))
    show(results, machine, wanted.rounds)
    if wanted.docs:
        DOCUMENT.write_text(write_page(results, machine, wanted.rounds, date.today()))
        progress.print(f"wrote {DOCUMENT}")


def show(results: Mapping[str, Result], machine: Mapping[str, object], rounds: int) -> None:
    """Print the tables."""
    console = Console()
    console.print("; ".join(f"{name}: {value}" for name, value in machine.items()))
    console.print(f"medians of {rounds} rounds")
    figures = {name: result.figures for name, result in results.items()}
    seconds = {name: result.seconds for name, result in results.items() if result.seconds}
    console.print(make_table("ratios", figures))
    if seconds:
        console.print(make_table("seconds a round", seconds))
    for result in results.values():
        for note in result.notes:
            console.print(note, markup=False)
