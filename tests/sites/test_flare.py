"""Real processes on the loopback: one federation of two sites, three runs one after the other.

In the first of them processes are killed. All end with the bits of the simulation.
"""

import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deployed import Corridor, experiment_at_sites, simulate
from golden import check
from isthmus import Experiment, tree
from isthmus.run.build import Built
from isthmus.run.store import digest_of
from isthmus_sites.consent import Consent
from isthmus_sites.engine import SitesEngine, name_state
from isthmus_sites.flare import keys
from isthmus_sites.flare.admission import (
    accept_admission,
    admit_site,
    begin_federation,
    request_admission,
    revoke_site,
)
from isthmus_sites.flare.gate import is_admitted
from isthmus_sites.folders import ServerFolder, SiteFolder
from isthmus_sites.protocol import ServePlan, read_events
from isthmus_sites.rehearsal import write_share
from isthmus_sites.server import open_store, prepare
from small import federation, played

DATA = federation((30, 40))
FLOCO = {"name": "floco", "vertices": 3, "tau": 1}  # sites are placed in the second round
EXPERIMENTS = {
    "superfed-mm": experiment_at_sites("superfed-mm", DATA, rounds=24, eval_every=12),
    "floco": experiment_at_sites(FLOCO, DATA, rounds=3, eval_every=2),
    "fedsimsup": experiment_at_sites("fedsimsup", DATA, rounds=3, eval_every=2),
}
NAMES = ("site-0", "site-1")
LIMIT = 120.0  # seconds; a busy machine is slow to start processes


def find_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(what: Callable[[], Any], seconds: float = LIMIT) -> Any:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError


class RealFederation:
    """Folders of a server and its sites, and the commands that run there."""

    def __init__(self, place: Path) -> None:
        self.place, self.port = place, find_port()
        self.server = ServerFolder(place / "the server")  # spaces are allowed
        self.sites = {name: SiteFolder(place / name) for name in NAMES}
        self.commands: dict[str, subprocess.Popen[bytes]] = {}
        self.told = ""

    def admit(self) -> None:
        begin_federation(self.server.root, "127.0.0.1", self.port)
        for i, (name, site) in enumerate(self.sites.items()):
            site.root.mkdir()
            request = request_admission(site.root, name)
            package, finger = admit_site(self.server.root, request, self.place)
            accept_admission(site.root, package, finger)
            write_share(DATA, i, site.root / "data.npz")

    def agree(self, experiment: Experiment) -> None:
        """Has all sites agree to an experiment: they answer calls of no other from then on."""
        terms = {"disclose": ("census",), "minimum_examples": 1, "minimum_label_count": 0}
        for name, site in self.sites.items():
            data = str(site.root / "data.npz")
            consent = Consent(experiment=experiment.toml(), site=name, data=data, **terms)
            consent.save(site.agreements)

    def set_aside(self, name: str) -> None:
        """Moves a run that is done elsewhere, so that there is room for another."""
        self.server.run.rename(self.find_run(name))

    def find_run(self, name: str) -> Path:
        return self.server.root / f"run of {name}"

    def wait_for_end(self) -> None:
        assert self.commands["server"].wait(LIMIT) == 0, (self.place / "server.txt").read_text()

    def start(self, name: str, *words: str) -> None:
        with (self.place / f"{name}.txt").open("ab") as output:
            self.commands[name] = subprocess.Popen(
                [sys.executable, "-m", "isthmus", *words], stdout=output, stderr=output
            )

    def find(self, folder: Path, kind: str) -> list[psutil.Process]:
        """Finds processes by the words that they were started with."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            mine = any(word.startswith(str(folder)) for word in words)
            if mine and words[1:4] == ["-m", "isthmus_sites.flare", kind]:
                found.append(process)
        return found

    def kill(self, folder: Path, kind: str) -> None:
        (process,) = wait_for(lambda: self.find(folder, kind))
        process.kill()

    def count_rounds(self) -> int:
        path = self.server.run / "rounds.csv"
        if not path.is_file():
            return 0
        return sum(line[:1].isdigit() for line in path.read_text().splitlines())

    def wait_for_rounds(self, more: int) -> None:
        goal = self.count_rounds() + more
        wait_for(lambda: self.count_rounds() >= goal or self.commands["server"].poll() is not None)

    def play_and_kill(self, experiment: Experiment) -> None:
        """Runs an experiment; a process that computes is killed, and the process of a job."""
        self.agree(experiment)
        path = self.place / "experiment.toml"
        path.write_text(experiment.toml())
        place = ("--folder", str(self.server.root))
        self.start("server", "serve", "run", str(path), *place, "--deadline", "1m")
        first, second = self.sites.values()
        self.wait_for_rounds(3)
        self.told = self.connect_as_stranger()
        self.kill(first.root, "worker")
        self.wait_for_rounds(2)
        self.kill(second.root, "site-job")
        self.wait_for_end()

    def play(self, experiment: Experiment) -> None:
        """Runs an experiment as `isthmus serve run` does once it has read it."""
        self.agree(experiment)
        ServePlan(experiment=experiment.toml(), deadline=60).save(self.server)
        self.start("server", "serve", "resume", "--folder", str(self.server.root))
        self.wait_for_end()

    def connect_as_stranger(self) -> str:
        """Says what the server tells who trusts it and has no certificate of its own."""
        context = ssl.create_default_context(cafile=self.server.authority / "authority.crt")
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
                    wrapped.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                    return repr(wrapped.recv(100))
            except (ssl.SSLError, ConnectionError) as error:
                return type(error).__name__

    def close(self) -> None:
        for command in self.commands.values():
            command.send_signal(signal.SIGTERM)
        for command in self.commands.values():
            command.wait(60)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFederation]:
    """A federation that has run three experiments."""
    made = RealFederation(tmp_path_factory.mktemp("real"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "BITS", 2048)  # the least that TLS takes
        made.admit()
    try:
        for name, site in made.sites.items():
            made.start(name, "join", "start", "--folder", str(site.root))
        made.play_and_kill(EXPERIMENTS["superfed-mm"])
        made.set_aside("superfed-mm")
        for name in ("floco", "fedsimsup"):
            made.play(EXPERIMENTS[name])
            made.set_aside(name)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_run_of_real_processes_ends_with_the_bits_of_the_simulation(
    real: RealFederation, name: str
) -> None:
    experiment, run = EXPERIMENTS[name], real.find_run(name)
    made, forms = prepare(experiment)
    plan = ServePlan(experiment=experiment.toml())
    engine = SitesEngine(Corridor({}), list(real.sites), forms, plan)
    store = open_store(run, Built(experiment, made._replace(engine=engine)))
    store.start()
    here, there = store.progress, played(simulate(experiment, DATA), experiment.rounds)
    own = {i: tree.digest([state]) for i, state in there.own.items()}
    assert {i: name_state(handle) for i, handle in here.own.items()} == own
    assert digest_of(here._replace(own={})) == digest_of(there._replace(own={}))
    store.close("finished")
    assert "no answer" not in (run / "notes.csv").read_text()


def test_what_happened_is_said_and_kept(real: RealFederation) -> None:
    events, _ = read_events(real.server.events)
    kinds = [event["event"] for event in events]
    assert {"server", "job", "lost", "done"} <= set(kinds)
    said = (real.place / "server.txt").read_text()
    check(said)
    assert "Traceback" not in said
    connected, _ = read_events(real.sites["site-0"].events)
    assert "connected" in [event["event"] for event in connected]


def test_nothing_runs_on_when_the_server_is_done(real: RealFederation) -> None:
    assert not real.find(real.server.root, "server")
    for site in real.sites.values():
        wait_for(lambda site=site: not real.find(site.root, "site-job"))
        assert not real.find(site.root, "worker")
        assert len(real.find(site.root, "site")) == 1


def test_nothing_of_a_site_is_at_the_server_but_its_answers(real: RealFederation) -> None:
    names = {path.name for path in real.server.root.rglob("*")}
    assert not names & {"data.npz", "join.jsonl", "worker.log", "agreements"}
    texts = [path.read_bytes() for path in real.server.kit.rglob("*") if path.is_file()]
    assert not any(b"Traceback" in text and b"site.py" in text for text in texts)


def test_who_has_no_certificate_gets_no_word(real: RealFederation) -> None:
    assert real.told in ("SSLError", "ConnectionResetError", "b''")


def test_the_server_admits_the_certificates_in_its_list_alone(real: RealFederation) -> None:
    site = real.sites["site-0"]
    own = (site.kit / "startup" / "client.crt").read_bytes()
    lead = (real.server.lead / "startup" / "client.crt").read_bytes()
    for kind, name, data, expected in (
        ("regular", "site-0", own, True),
        ("regular", "site-1", own, False),  # another's name
        ("admin", "site-0", own, False),
        ("relay", "site-0", own, False),
        ("regular", "site-0", b"nothing", False),
        ("regular", "site-0", None, False),
        ("regular", None, own, False),
        ("admin", "lead", lead, True),
        ("regular", "site-0", lead, False),
    ):
        assert is_admitted(real.server, kind, name, data) is expected
    revoke_site(real.server.root, "site-0")
    assert not is_admitted(real.server, "regular", "site-0", own)
