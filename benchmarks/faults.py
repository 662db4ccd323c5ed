"""Harms a deployed run at random instants: `python -m benchmarks.faults --faults 50 --out DIR`.

Server and sites are processes, each site in a network namespace and on a disk of its own where this
machine allows it. Faults are drawn from a seed; some come while others are not over. A run that is
done is held against the simulation of its record, server and own states, digest for digest; then
another begins with another method, until there were enough faults. Ends with exit code 1 if a run
did not come to its last round, or came to other bits.
"""

import argparse
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks.stage import SERVER, Disks, Stage, Wires, build_clock
from isthmus import Experiment
from isthmus.experiment.settings import read_assignments
from isthmus.run.build import read_federation
from isthmus.run.record import read
from isthmus_sites.audit import read_lines
from isthmus_sites.engine import ANSWERED
from isthmus_sites.folders import ServerFolder, SiteFolder
from isthmus_sites.rehearsal import check, lay_out, plan_study
from isthmus_sites.replay import read_calls
from isthmus_sites.state import SiteStates

METHODS: tuple[dict[str, Any], ...] = (
    {"name": "superfed-mm", "start": 0.0},  # from its start on there are own states
    {"name": "ditto"},
    {"name": "floco"},
    {"name": "fedsimsup"},
    {"name": "fedavg"},
)
GRACE = 5  # seconds for the others, once a quorum has answered
PATIENCE = 300.0  # seconds until rounds have to go on with all sites
BURST = 0.7  # how many faults do not wait for the last one to be over

Fault = Callable[[Stage, str, random.Random], str]


def kill_level(level: str, who: str = "") -> Fault:
    """Make the fault that kills one process; what a service manager keeps is started again."""

    def harm(stage: Stage, name: str, rng: random.Random) -> str:
        target = who or name
        managed = level in ("keeper", "supervisor")
        stage.wait(lambda: bool(stage.find(target, level)), 20)  # it may be starting
        if managed:
            stage.down.add(target)
        count = stage.kill(target, level)
        if managed:
            stage.processes[target].wait()
            pause = rng.uniform(0, 6)
            time.sleep(pause)
            restart(stage, target)
            return f"killed {count}, started again after {pause:.0f} s"
        return f"killed {count}"

    return harm


def kill_machine(who: str = "") -> Fault:
    """Make the fault that kills all processes at once."""

    def harm(stage: Stage, name: str, rng: random.Random) -> str:
        target, pause = who or name, rng.uniform(1, 15)
        count = crash(stage, target)
        stage.sleep(pause)
        restart(stage, target)
        return f"killed {count}, started again after {pause:.0f} s"

    return harm


def crash(stage: Stage, who: str) -> int:
    """Kill all processes of one side; they stay down."""
    stage.down.add(who)
    count = stage.kill(who)
    stage.processes[who].wait()
    return count + stage.kill(who)  # those that were just starting


def restart(stage: Stage, who: str, clock: str = "") -> None:
    """Start one side again."""
    if who == SERVER:
        stage.resume()
    else:
        stage.start_site(who, clock)


def lose_rounds(stage: Stage, name: str, rng: random.Random) -> str:
    """Take a site away until two rounds were done without it."""
    crash(stage, name)
    goal, i = stage.count_rounds() + 3, stage.names.index(name)
    stage.wait(lambda: stage.count_rounds() >= goal, PATIENCE)
    missed = [
        r for r, client, how in stage.list_outcomes(goal - 3) if client == i and how != ANSWERED
    ]
    restart(stage, name)
    return f"away until it had missed {len(missed)} rounds"


def freeze(seconds: float) -> Fault:
    """Make the fault that stops all processes of a site for a while."""

    def harm(stage: Stage, name: str, rng: random.Random) -> str:
        stage.down.add(name)
        count = stage.send(name, signal.SIGSTOP)
        stage.sleep(seconds)
        stage.send(name, signal.SIGCONT)
        stage.down.discard(name)
        return f"{count} processes stopped"

    return harm


def cut_wire(seconds: float) -> Fault:
    """Make the fault that cuts a site's wire for a while: nothing arrives, and nobody is told."""

    def harm(stage: Stage, name: str, rng: random.Random) -> str:
        stage.wires.switch(name, "down")
        stage.sleep(seconds)
        stage.wires.switch(name, "up")
        return "cut and mended"

    return harm


def fill_disk(stage: Stage, name: str, rng: random.Random) -> str:
    """Fill a site's disk for a while."""
    pause, before = rng.uniform(5, 25), stage.count_rounds()
    stage.disks.fill(stage.out / name)
    stage.sleep(pause)
    i = stage.names.index(name)
    missed = [
        how for _, client, how in stage.list_outcomes(before) if client == i and how != ANSWERED
    ]
    stage.disks.free(stage.out / name)
    return f"full for {pause:.0f} s, {len(missed)} calls not answered"


def shift_clock(stage: Stage, name: str, rng: random.Random) -> str:
    """Put a site's clock an hour off, from one start of it to the next."""
    clock = rng.choice(["3600", "-3600"])
    crash(stage, name)
    before, i = stage.count_rounds(), stage.names.index(name)
    restart(stage, name, clock)

    def answered() -> bool:
        return sum(c == i and how == ANSWERED for _, c, how in stage.list_outcomes(before)) > 2

    took_part = stage.wait(answered, 120)
    crash(stage, name)
    restart(stage, name)
    return f"{clock} s: {'it took part' if took_part else 'it did not take part'}"


def restore_older(stage: Stage, name: str, rng: random.Random) -> str:
    """Restore a site from a copy that is some rounds old; later give it its newest one back."""
    place, i = stage.out / name, stage.names.index(name)
    old, new = stage.out / "copies" / f"{name}-old", stage.out / "copies" / f"{name}-new"
    for copy in (old, new):
        shutil.rmtree(copy, ignore_errors=True)
    crash(stage, name)
    shutil.copytree(place, old)
    restart(stage, name)
    since = stage.count_rounds()

    def answered() -> bool:
        return sum(c == i and how == ANSWERED for _, c, how in stage.list_outcomes(since)) > 2

    if not stage.wait(answered, PATIENCE) or stage.is_over():
        return "it did not come to a newer state"
    crash(stage, name)
    before = stage.count_rounds()
    shutil.copytree(place, new)
    if list_states(old) & list_states(new):
        restart(stage, name)
        return "its own state had not changed: the copy is as good"
    stage.harm_copy(name, old)
    restart(stage, name)

    def refused() -> bool:
        return any(c == i and "refused" in how for _, c, how in stage.list_outcomes(before))

    noticed = stage.wait(refused, PATIENCE)
    crash(stage, name)
    wrong = sum(c == i and how == ANSWERED for _, c, how in stage.list_outcomes(before))
    stage.harm_copy(name, new)
    restart(stage, name)
    if wrong:
        stage.notes.append(f"{name}, an older copy, answered {wrong} calls")
    return "noticed and refused" if noticed and not wrong else f"NOT NOTICED, {wrong} answers"


def list_states(copy: Path) -> set[str]:
    """List the digests of the own states in a copy of a site's folder."""
    held = set()
    for path in (copy / "state").glob("*.lmdb"):
        states = SiteStates(path)
        held |= states.list_held()
        states.close()
    return held


FAULTS: Mapping[str, tuple[int, Fault]] = MappingProxyType(
    {  # how many of 54 there are, and what they do
        "kill -9 of a site's keeper": (4, kill_level("keeper")),
        "kill -9 of a site's parent": (5, kill_level("parent")),
        "kill -9 of a site's job": (5, kill_level("job")),
        "kill -9 of a site's worker": (6, kill_level("worker")),
        "kill -9 of the supervisor": (4, kill_level("supervisor", SERVER)),
        "kill -9 of the server's parent": (4, kill_level("parent", SERVER)),
        "kill -9 of the server's job": (4, kill_level("job", SERVER)),
        "all of a site at once": (4, kill_machine()),
        "all of the server at once": (3, kill_machine(SERVER)),
        "a site gone for two rounds": (2, lose_rounds),
        "a site stopped for 20 s": (1, freeze(20)),
        "a site stopped for 60 s": (2, freeze(60)),
        "a wire cut for 10 s": (1, cut_wire(10)),
        "a wire cut for 60 s": (2, cut_wire(60)),
        "a full disk": (4, fill_disk),
        "a clock an hour off": (2, shift_clock),
        "an older copy of a site": (2, restore_older),
    }
)


class Row(NamedTuple):
    """A fault that happened, and what came of it."""

    number: int
    fault: str
    name: str
    at: float  # seconds since the run began
    before: int  # rounds done then
    clock: float  # the same instant, on the machine's clock
    what: str
    rounds: int  # done when the fault was over


def draw_faults(count: int, rng: random.Random, only: str) -> list[str]:
    """Draw the order of faults: every kind as often as it should be."""
    kinds = [name for name, (weight, _) in FAULTS.items() for _ in range(weight)]
    kinds = [name for name in kinds if only in name]
    drawn: list[str] = []
    while len(drawn) < count:
        rng.shuffle(kinds)
        drawn += kinds
    return drawn[:count]


class Verdict(NamedTuple):
    """How one run ended."""

    faults: int
    holds: bool


def play(wanted: argparse.Namespace, number: int, faults: list[str], rng: random.Random) -> Verdict:
    """Play one run with faults from the front of a list, and compare it with its record."""
    method = {"name": wanted.method} if wanted.method else METHODS[number % len(METHODS)]
    out = (wanted.out / f"run-{number + 1}-{method['name']}").resolve()
    given: dict[str, Any] = {"method": method, "data": "digits", "rounds": wanted.rounds}
    given |= {"clients": wanted.sites, "clients_per_round": wanted.sites, "epochs": 1}
    given |= {"eval_every": wanted.rounds // 4 or 1, "seed": wanted.seed + number}
    experiment = Experiment(**read_assignments(wanted.set, {}, given))
    data = read_federation(experiment, wanted.data_root)
    study = plan_study(experiment, data)
    names = list(study.data["names"])
    wires, disks = Wires(names), Disks([out / name for name in names])
    stage = Stage(out, names, wires, disks)
    try:
        out.mkdir(parents=True)
        if not wanted.loopback:
            wires.open()
        disks.open()
        stage.clock = build_clock(out)
        print(
            f"run {number + 1}: {method['name']}, {len(names)} sites, {study.rounds} rounds",
            flush=True,
        )
        print(f"  {describe_means(stage)}", flush=True)
        (out / "study.toml").write_text(study.toml())
        lay_out(experiment, study, data, out, wires.host)
        for name in names:
            stage.start_site(name)
        serve = ["serve", "run", str(out / "study.toml"), "--folder", str(out / SERVER)]
        limits = ["--quorum", "0.6", "--deadline", f"{wanted.deadline}s", "--grace", f"{GRACE}s"]
        stage.start(SERVER, [*serve, *limits])
        count = harm_run(stage, faults, rng, wanted)
        stage.wait(stage.is_over, 600 + 5 * wanted.rounds)
        print(f"  seconds of a round: {stage.describe_pace()}", flush=True)
        for line in stage.describe_memory():
            print(f"  {line}")
        stage.close()
        holds = judge(stage, study, data)
        return Verdict(count, holds)
    finally:
        stage.close()
        disks.close(out / "kept")
        wires.close()


def describe_means(stage: Stage) -> str:
    """Describe what this machine allows."""
    net = "a network namespace for each site" if stage.wires.there else "all on the loopback"
    disk = "a disk for each site" if stage.disks.there else "no disks of their own: none is full"
    clock = "clocks by LD_PRELOAD" if stage.clock else "no compiler: all clocks are right"
    return f"{net}; {disk}; {clock}"


def harm_run(
    stage: Stage, faults: list[str], rng: random.Random, wanted: argparse.Namespace
) -> int:
    """Harm a run until it is over, or there are no more faults; count them."""
    began, count = time.monotonic(), 0
    able = {"wire": stage.wires.there, "full": stage.disks.there, "clock": bool(stage.clock)}
    stage.wait(lambda: stage.count_rounds() >= 2, PATIENCE)
    rows: list[Row] = []
    while faults and not stage.is_over() and time.monotonic() < wanted.ends:
        stage.sleep(rng.uniform(0, 4))
        if not count % 5:
            stage.measure_memory()
        if stage.is_over():
            break
        fault, name = faults.pop(0), rng.choice(stage.names)
        if not able.get(fault.split(" ")[1], True):
            print(f"  {fault}: left out, this machine does not allow it", flush=True)
            continue
        clock, before = time.monotonic(), stage.count_rounds()
        what = FAULTS[fault][1](stage, name, rng)
        count += 1
        who = "server" if "server" in fault or "supervisor" in fault else name
        number = wanted.faults - len(faults)
        rows.append(
            Row(number, fault, who, clock - began, before, clock, what, stage.count_rounds())
        )
        if rng.random() < BURST and faults and not stage.is_over():
            continue
        wait_and_print(stage, rows)
    wait_and_print(stage, rows)
    stage.measure_memory()
    return count


def wait_and_print(stage: Stage, rows: list[Row]) -> None:
    """Wait until a round has all sites in it again, and print a line for each fault."""
    if not rows:
        return
    last = rows[-1].rounds

    def is_well() -> bool:
        return stage.has_full_round(last + 1)  # that began after the fault

    well = stage.wait(lambda: is_well() or bool(stage.list_left_out()), PATIENCE)
    if stage.list_left_out() and not is_well():
        stage.notes.append(f"left out: {', '.join(stage.list_left_out())}; the server is resumed")
        crash(stage, SERVER)
        restart(stage, SERVER)
        well = stage.wait(is_well, PATIENCE)
    now = time.monotonic()
    for row in rows:
        on = next((s.at for s in stage.samples if s.at > row.clock and s.rounds > row.before), now)
        missed = Counter(how for _, _, how in stage.list_outcomes(row.before) if how != ANSWERED)
        end = f"{now - row.clock:4.0f} s" if well else "NOT WELL"
        end = "run over" if stage.is_over() else end
        lost = "; ".join(f"{n} {how}" for how, n in missed.items())
        print(
            f"  {row.number:3} {row.at:6.0f} s  round {row.before:4}  {row.fault:31} {row.name:8} "
            f"next round {on - row.clock:4.0f} s, all sites {end}; {row.what}"
            f"{f' [{lost}]' if lost else ''}",
            flush=True,
        )
    for note in stage.notes:
        print(f"      {note}", flush=True)
    stage.notes.clear()
    rows.clear()


def judge(stage: Stage, study: Experiment, data: Any) -> bool:
    """Hold a run that is over against the simulation of its record."""
    for note in stage.notes:
        print(f"      {note}")
    problems = []
    if stage.count_rounds() != study.rounds:
        problems.append(f"{stage.count_rounds()} of {study.rounds} rounds are recorded")
    recorded = {round for round, _ in read_calls(stage.run)}
    if recorded != set(range(1, study.rounds + 1)):
        problems.append("calls.csv does not have every round")
    sites = [SiteFolder(stage.out / name) for name in stage.names]
    for site in sites:
        calls = sum(1 for _ in read_lines(site.audit))
        print(f"  {site.root.name}: {calls} calls in its log, which is whole")
    began = time.monotonic()
    comparison = check(ServerFolder(stage.out / SERVER), sites, study, data)
    seconds = (time.monotonic() - began) / study.rounds
    spent = median(read(stage.run).rounds.train_seconds)
    if comparison.deployed != comparison.simulated:
        problems.append(f"the server has {comparison.deployed}, the replay {comparison.simulated}")
    if comparison.differing:
        problems.append(f"own states differ: {', '.join(comparison.differing)}")
    print(f"  {comparison.missed} answers missing; the calls of a round took {spent:.2f} s;")
    print(f"  a round of the replay, with its share of evaluations, {seconds:.2f} s")
    verdict = "; ".join(problems) or f"the bits of its record's simulation, {comparison.simulated}"
    print(f"  {'DIFFERENT' if problems else 'equal'}: {verdict}", flush=True)
    return not problems


def main() -> None:
    """Play runs until there were enough faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=54)
    parser.add_argument("--only", choices=FAULTS, default="", help="this fault alone")
    parser.add_argument("--seconds", type=float, default=7200.0, help="no new fault after that")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=int, default=40, help="seconds of a call")
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200, help="of one run")
    parser.add_argument("--method", help="of all runs; else one after another")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--loopback", action="store_true", help="make no network namespaces")
    parser.add_argument("--out", type=Path, required=True)
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is put away
    rng = random.Random(wanted.seed)
    wanted.ends = time.monotonic() + wanted.seconds
    faults = draw_faults(wanted.faults, rng, wanted.only)
    verdicts: list[Verdict] = []
    while True:
        verdicts.append(play(wanted, len(verdicts), faults, rng))
        if not faults or time.monotonic() > wanted.ends:
            break
    total, equal = sum(each.faults for each in verdicts), sum(each.holds for each in verdicts)
    print(f"{total} faults in {len(verdicts)} runs, of which {equal} came to the right bits")
    sys.exit(0 if equal == len(verdicts) else 1)


if __name__ == "__main__":
    main()
