"""A deployment on this machine that can be harmed: processes, wires, disks and clocks of sites."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from isthmus.errors import IsthmusError
from isthmus_sites.engine import ANSWERED
from isthmus_sites.protocol import read_events
from isthmus_sites.replay import read_calls

SERVER = "server"
DISK = 96  # MB of a site's disk
LEVELS = {  # the processes of a site and of a server, from the outermost inwards
    "keeper": ("join", "start"),
    "parent": ("site", "server"),
    "job": ("site-job", "server-job"),
    "worker": ("worker",),
    "supervisor": ("serve",),
}


def call(*words: str) -> bool:
    """Run a command; tell whether it could."""
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Wires:
    """A network namespace for each site and a bridge to the server; else all share a loopback."""

    def __init__(self, names: Sequence[str]) -> None:
        number = os.getpid() % 200 + 20
        self.names = list(names)
        self.bridge = f"isth{number}"
        self.net = f"10.203.{number}"
        self.there = False

    def open(self) -> None:
        """Make them, where this machine lets us."""
        self.there = call("ip", "link", "add", self.bridge, "type", "bridge")
        self.there &= call("ip", "addr", "add", f"{self.net}.1/24", "dev", self.bridge)
        self.there &= call("ip", "link", "set", self.bridge, "up")
        for i, name in enumerate(self.names):
            space, outer, inner = self._space(name), self._wire(name), f"{self.bridge}i{i}"
            inside = ("ip", "-n", space)
            self.there &= call("ip", "netns", "add", space)
            self.there &= call("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
            self.there &= call("ip", "link", "set", inner, "netns", space)
            self.there &= call("ip", "link", "set", outer, "master", self.bridge, "up")
            address = f"{self.net}.{i + 2}/24"
            self.there &= call(*inside, "addr", "add", address, "dev", inner)
            self.there &= call(*inside, "link", "set", inner, "up")
            self.there &= call(*inside, "link", "set", "lo", "up")

    @property
    def host(self) -> str:
        """The address of the server."""
        return f"{self.net}.1" if self.there else "127.0.0.1"

    def enter(self, name: str) -> list[str]:
        """Return the words that start a command inside of a site's namespace."""
        return ["nsenter", f"--net=/var/run/netns/{self._space(name)}"] if self.there else []

    def switch(self, name: str, state: str) -> None:
        """Cut a site's wire ("down"), or mends it ("up")."""
        call("ip", "link", "set", self._wire(name), state)

    def close(self) -> None:
        """Remove all of it."""
        for name in self.names:
            call("ip", "link", "del", self._wire(name))
            call("ip", "netns", "del", self._space(name))
        call("ip", "link", "del", self.bridge)

    def _space(self, name: str) -> str:
        return f"{self.bridge}-{name}"

    def _wire(self, name: str) -> str:
        return f"{self.bridge}o{self.names.index(name)}"


class Disks:
    """A small disk for each site, where this machine lets us mount one."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = list(places)
        self.there = False

    def open(self) -> None:
        """Mount them."""
        self.there = True
        for place in self.places:
            place.mkdir(parents=True)
            self.there &= call("mount", "-t", "tmpfs", "-o", f"size={DISK}m", "none", str(place))

    def fill(self, place: Path) -> None:
        """Leave no byte free."""
        with suppress(OSError), (place / "filling").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(2**16))
        with suppress(OSError), (place / "filling.rest").open("wb", buffering=0) as file:
            while True:
                file.write(b"0")

    def free(self, place: Path) -> None:
        """Free what was filled."""
        for name in ("filling", "filling.rest"):
            (place / name).unlink(missing_ok=True)

    def close(self, keep: Path) -> None:
        """Unmount them; what is there is kept elsewhere."""
        for place in self.places:
            if os.path.ismount(place):
                shutil.copytree(place, keep / place.name, dirs_exist_ok=True)
                call("umount", "-l", str(place))


def build_clock(out: Path) -> str:
    """Build the library that shows a process another time; empty: there is no compiler."""
    built = out / "clock.so"
    source = Path(__file__).with_name("clock.c")
    made = call("gcc", "-shared", "-fPIC", "-O1", "-o", str(built), str(source))
    return str(built) if made else ""


class Sample(NamedTuple):
    """How far a run was at an instant."""

    at: float
    rounds: int


class Stage:
    """Processes of a server and of its sites, kept going as a service manager would."""

    def __init__(self, out: Path, names: Sequence[str], wires: Wires, disks: Disks) -> None:
        self.out, self.names, self.wires, self.disks = out, list(names), wires, disks
        self.run = out / SERVER / "run"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.down: set[str] = set()  # on purpose
        self.notes: list[str] = []
        self.samples: list[Sample] = []
        self.memory: dict[str, list[float]] = defaultdict(list)
        self.clock = ""  # a library that shows another time
        self.since = 0  # where in its events the server that runs now began

    def start(self, who: str, words: Sequence[str], clock: str = "") -> None:
        """Start a command of this program: in a site's namespace, and by its clock."""
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        if clock:
            env |= {"LD_PRELOAD": self.clock, "CLOCK_SHIFT": clock}
        enter = self.wires.enter(who) if who != SERVER else []
        if who == SERVER:
            _, self.since = read_events(self.out / SERVER / "serve.jsonl")
        with (self.out / f"{who}.log").open("ab") as log:
            self.processes[who] = subprocess.Popen(
                [*enter, sys.executable, "-m", "isthmus", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
            )
        self.down.discard(who)

    def start_site(self, name: str, clock: str = "") -> None:
        """Start a site."""
        self.start(name, ["join", "start", "--folder", str(self.out / name)], clock)

    def resume(self) -> None:
        """Start the server again."""
        self.start(SERVER, ["serve", "resume", "--folder", str(self.out / SERVER)])

    def find(self, who: str, level: str = "") -> list[psutil.Process]:
        """Find the processes of a site, or of the server, by the words they were started with."""
        folder, found = str(self.out / who), []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "-m" not in words or not any(
                word == folder or word.startswith(f"{folder}/") for word in words
            ):
                continue
            word = words[words.index("-m") + 2]
            if not level or word in LEVELS[level]:
                found.append(process)
        return found

    def kill(self, who: str, level: str = "") -> int:
        """Kill processes with SIGKILL, all of them at once if no level is said; count them."""
        return self.send(who, signal.SIGKILL, level)

    def send(self, who: str, number: signal.Signals, level: str = "") -> int:
        """Send a signal to processes; count them."""
        found = self.find(who, level)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return len(found)

    def tend(self) -> bool:
        """Start again what ended by itself; True: the run is over."""
        for name in self.names:
            code = self.processes[name].poll()
            if code is not None and name not in self.down:
                self.notes.append(f"{name}'s keeper ended with {code}: {self._last_line(name)}")
                time.sleep(1)
                self.start_site(name)
        code = self.processes[SERVER].poll()
        if code == 0 and SERVER not in self.down:
            return True
        if code is not None and SERVER not in self.down:
            self.notes.append(f"the server ended with {code}: {self._last_line(SERVER)}")
            time.sleep(1)
            self.resume()
        self.samples.append(Sample(time.monotonic(), self.count_rounds()))
        return False

    def wait(self, what: Callable[[], bool], seconds: float) -> bool:
        """Wait for something, the end of the run, or so long; tell whether it came."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if self.tend():
                return what()
            if what():
                return True
            time.sleep(0.1)
        return False

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.wait(lambda: False, seconds)

    def is_over(self) -> bool:
        """Return whether the run came to its end."""
        return SERVER not in self.down and self.processes[SERVER].poll() == 0

    def count_rounds(self) -> int:
        """Count the rounds that are recorded."""
        try:
            lines = (self.run / "rounds.csv").read_text().splitlines()
        except OSError:
            return 0
        return max((int(line.split(",")[0]) for line in lines if line[:1].isdigit()), default=0)

    def list_outcomes(self, after: int) -> Iterator[tuple[int, int, str]]:
        """List (round, client, outcome) of calls that train, of rounds after one."""
        try:
            calls = read_calls(self.run)
        except (IsthmusError, OSError):  # it is being written anew
            return
        for (round, _), asked in calls.items():
            if round > after and not asked.function.startswith("evaluation:"):
                yield from ((round, i, outcome) for i, outcome in asked.outcomes.items())

    def has_full_round(self, after: int) -> bool:
        """Return whether every site answered in some round after this one."""
        rounds: dict[int, bool] = {}
        for round, _, outcome in self.list_outcomes(after):
            rounds[round] = rounds.get(round, True) and outcome == ANSWERED
        return any(rounds.values())

    def list_left_out(self) -> list[str]:
        """List the sites that the server that runs now has left out."""
        events, _ = read_events(self.out / SERVER / "serve.jsonl", self.since)
        return [row["site"] for row in events if row["event"] == "left-out"]

    def measure_memory(self) -> None:
        """Note the memory of every process, by its level."""
        for who in (SERVER, *self.names):
            side = "server" if who == SERVER else "site"
            for level in LEVELS:
                for process in self.find(who, level):
                    with suppress(psutil.Error):
                        used = process.memory_full_info()
                        self.memory[f"{side}: {level}, resident"].append(used.rss / 2**20)
                        self.memory[f"{side}: {level}, its own"].append(used.uss / 2**20)

    def describe_memory(self) -> list[str]:
        """List the median memory of processes, in MB."""
        return [f"{name} {median(sizes):.0f} MB" for name, sizes in sorted(self.memory.items())]

    def describe_pace(self) -> str:
        """Describe how long a round took while rounds went on."""
        firsts: dict[int, float] = {}
        for at, rounds in self.samples:
            firsts.setdefault(rounds, at)
        gaps = [firsts[t] - firsts[t - 1] for t in firsts if t - 1 in firsts and t > 1]
        return f"{median(gaps):.2f} s" if gaps else "unknown"

    def harm_copy(self, name: str, old: Path) -> None:
        """Put a copy of a site's folder in the place of what is there."""
        place = self.out / name
        for each in place.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.copytree(old, place, dirs_exist_ok=True)

    def close(self) -> None:
        """End everything that was started here."""
        self.down = {SERVER, *self.names}
        for who in self.down:
            self.send(who, signal.SIGCONT)
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
        for who in self.down:
            self.kill(who)

    def _last_line(self, who: str) -> str:
        lines = (self.out / f"{who}.log").read_text("utf-8", "replace").splitlines()
        return lines[-1] if lines else ""
