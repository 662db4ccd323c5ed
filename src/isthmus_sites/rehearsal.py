"""All of a deployment on one machine: a server and sites as processes, beside the simulation.

The data of a simulation are divided among folders, one for each site, none of which another one's
process reads; keys are made, requests travel as files, processes talk over loopback. In the end the
server's state and every site's own state are held against those of the simulation.
"""

import csv
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import TEST, TRAIN, VALIDATION
from isthmus.data.federation import Federation
from isthmus.data.own.reader import open_table, read_rows
from isthmus.data.own.sites import describe
from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment
from isthmus.run import record as reader
from isthmus.system.files import explain_unwritable, write_text
from isthmus_sites.consent import digest_experiment, finalize_experiment
from isthmus_sites.folders import NAME, TAKEN, ServerFolder, SiteFolder
from isthmus_sites.preparation import consent, find_data, list_disclosures, register
from isthmus_sites.replay import replay
from isthmus_sites.site import prepare
from isthmus_sites.state import SiteStates

PARTS = {TRAIN: "train", VALIDATION: "validation", TEST: "test"}
END_TIMEOUT_S = 20.0  # for processes to end after SIGTERM

Tell = Callable[[str], None]


class ReplayComparison(NamedTuple):
    """Whether a deployed run and its simulation came to the same."""

    deployed: str  # digest of the server's state, and of all own states by their digests
    simulated: str
    differing: tuple[str, ...]  # sites whose own states differ
    missed: int = 0  # answers that the server did not get; the simulation does without them too

    @property
    def identical(self) -> bool:
        """Whether all is the same."""
        return self.deployed == self.simulated and not self.differing


def name_sites(data: Federation) -> list[str]:
    """Return a name of a site for each client: after its name where that fits, else its number."""
    names = [re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in data.names]
    fit = [n for n in names if NAME.fullmatch(n) and n not in TAKEN and not n.isdigit()]
    if len(set(fit)) == len(data):
        return names
    width = len(str(len(data)))
    return [f"site-{i + 1:0{width}}" for i in range(len(data))]


def write_client_data(
    experiment: Experiment, data: Federation, i: int, folder: Path
) -> tuple[str, dict[str, Any]]:
    """Write what client i holds into a file; return the file and how it is read.

    Of a table it is that client's rows as they stand; of all else, arrays.
    """
    if experiment.data["name"] == "table":
        place, source = folder / "data.csv", Path(experiment.data["path"])
        rows = np.sort(np.concatenate(data.splits[i]))
        _copy_rows(source, place, rows, experiment.data["delimiter"])
        return str(place), {
            key: experiment.data[key] for key in ("label", "split", "weight", "schema")
        }
    place = folder / "data.npz"
    write_share(data, i, place)
    return str(place), {}


def write_share(data: Federation, i: int, path: Path) -> None:
    """Write what client i holds as arrays, each example with its split."""
    split = np.full(len(data.arrays.y), -1)
    for part, rows in zip(PARTS, data.splits[i], strict=True):
        split[rows] = part
    mine = split >= 0
    words = np.array([*PARTS.values()])[split[mine]]
    given: dict[str, Any] = {"x": data.arrays.x, "y": data.arrays.y, "weight": data.arrays.weight}
    held = {name: array[mine] for name, array in given.items() if array is not None}
    np.savez(path, split=words, **held)


def _copy_rows(source: Path, place: Path, rows: NDArray[np.int64], delimiter: str) -> None:
    header, *lines = read_rows(open_table(source, delimiter))
    with place.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *(lines[row] for row in rows.tolist())])


def plan_study(experiment: Experiment, data: Federation) -> Experiment:
    """Return the experiment of sites that hold what the clients of a simulation hold."""
    names = name_sites(data)
    table = {"name": "sites", "names": names, "schema": describe(data.arrays)}
    given = experiment.table() | {"data": table, "partition": "natural", "clients": len(data)}
    given["clients_per_round"] = min(experiment.clients_per_round, len(data))
    return finalize_experiment(Experiment(**given))


def rehearse(experiment: Experiment, data: Federation, out: Path, tell: Tell) -> ReplayComparison:
    """Deploy a run on this machine, with a site for each client, and compare it."""
    with explain_unwritable(out):
        if out.exists() and any(out.iterdir()):
            raise IsthmusError(f"{out} is not empty; name a new directory with --out")
        out.mkdir(parents=True, exist_ok=True)
    study = plan_study(experiment, data)
    names = list(study.data["names"])
    write_text(out / "study.toml", study.toml())
    tell(f"{len(names)} sites and a server below {out}: keys, requests, packages, consent")
    folders = lay_out(experiment, study, data, out)
    with ExitStack() as stack:
        for name in names:
            folder = str(folders[name].root)
            stack.enter_context(
                _keep_running(["join", "start", "--folder", folder], out / f"{name}.log")
            )
        tell(f"{len(names)} site processes are started; the server runs {study.rounds} rounds")
        serve = ["serve", "run", str(out / "study.toml"), "--folder", str(out / "server")]
        _run_to_end([*serve, "--deadline", "2m"], out / "server.log", tell)
    tell("the same in simulation")
    return check(ServerFolder(out / "server"), list(folders.values()), study, data)


def check(
    server: ServerFolder, sites: Sequence[SiteFolder], study: Experiment, data: Federation
) -> ReplayComparison:
    """Play what a server recorded in simulation, and compare the server and all its sites."""
    end = replay(server.run, study, data)
    own, names = end.own, list(study.data["names"])
    differing = [
        name
        for i, (name, site) in enumerate(zip(names, sites, strict=True))
        if own.get(i, "") not in _list_held(site, study)
    ]
    deployed = reader.read(server.run).summary.digest
    return ReplayComparison(deployed, end.digest, tuple(differing), end.missed)


def lay_out(
    experiment: Experiment, study: Experiment, data: Federation, out: Path, host: str = "127.0.0.1"
) -> dict[str, SiteFolder]:
    """Make a server's folder and one for each site, admitted, with data and consent."""
    from isthmus_sites.flare import admission
    from isthmus_sites.flare.processes import find_port

    finger = admission.begin_federation(out / "server", host, find_port())
    told = list(list_disclosures(*prepare(study)))
    folders = {}
    for i, name in enumerate(study.data["names"]):
        site = SiteFolder(out / name)
        request = admission.request_admission(site.root, name)
        package, _ = admission.admit_site(out / "server", request, out)
        admission.accept_admission(site.root, package, finger)
        register(site, *write_client_data(experiment, data, i, site.root))
        consent(
            site, study, find_data(site), disclose=told, minimum_examples=1, minimum_label_count=0
        )
        folders[name] = site
    return folders


@contextmanager
def _keep_running(command: Sequence[str], log: Path) -> Iterator[None]:
    """Keep a process of this program running, its output in a file."""
    with log.open("ab") as file:
        process = _start(command, file)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _run_to_end(command: Sequence[str], log: Path, tell: Tell) -> None:
    """Run this program to its end; pass its lines on, and keep them in a file."""
    with log.open("wb") as file, _start(command, subprocess.PIPE) as process:
        try:
            for line in process.stdout or ():
                file.write(line)
                tell(line.decode("utf-8", "replace").rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise IsthmusError(f"the server ended with exit code {process.returncode}; see {log}")


def _start(command: Sequence[str], output: IO[bytes] | int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "isthmus", *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def _list_held(site: SiteFolder, study: Experiment) -> set[str]:
    """Return the digests of a site's own states; the last one, if it has heard of the end."""
    states = SiteStates(site.state / f"{digest_experiment(study)}.lmdb")
    try:
        return states.list_held()
    finally:
        states.close()
