"""Deployed runs with faults at random instants: whatever was lost, the record tells it all."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deployed import Corridor, Deployment, experiment_at_sites
from golden import raises
from isthmus.errors import IsthmusError
from isthmus_sites import codec
from isthmus_sites.codec import ReplyHead
from isthmus_sites.protocol import ServePlan, SiteAnswer
from isthmus_sites.replay import read_calls, replay
from isthmus_sites.server import run_rounds
from small import federation

METHOD = {"name": "superfed-mm", "start": 0.1}
DATA = federation()
ROUNDS = 64
FAULTS = {  # at a call to a site, each as likely as its number says
    "none": 12,
    "the site is not there": 6,
    "the answer comes too late": 6,
    "an answer comes to the next call": 5,
    "the site dies before it is asked": 6,
    "the site dies before its answer leaves, and is asked again": 6,
    "the server dies while it waits": 2,
    "an older copy of the site for one call": 3,
}


class ServerDied(Exception):  # noqa: N818 - it is meant
    """Ends a round that is not committed."""


class RoughCorridor(Corridor):
    """Carries messages as long as nothing happens."""

    def __init__(self, deployed: Deployment, seed: int):
        Corridor.__init__(self, deployed.corridor.sites)
        deployed.corridor = self
        self.deployed = deployed
        self.rng = random.Random(seed)
        self.happened: Counter[str] = Counter()
        self.stale: dict[str, bytes] = {}
        self.copies: dict[str, Path] = {}

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        for name, message in messages.items():
            fault = self.rng.choices(list(FAULTS), list(FAULTS.values()))[0]
            self.happened[fault] += 1
            yield self.carry(name, message, fault)

    def carry(self, name: str, message: bytes, fault: str) -> SiteAnswer:
        if fault == "the site is not there":
            return SiteAnswer(name, None, "absent")
        if fault == "the site dies before it is asked":
            self.reopen(name)
        if fault == "an older copy of the site for one call":
            return self.ask_older(name, message)
        answer = self.sites[name].answer(message)
        if fault == "the server dies while it waits":
            raise ServerDied
        if fault == "the answer comes too late":
            self.stale[name] = answer
            return SiteAnswer(name, None, "late")
        if fault == "an answer comes to the next call" and name in self.stale:
            return SiteAnswer(name, self.stale.pop(name))
        if fault == "the site dies before its answer leaves, and is asked again":
            self.reopen(name)
            answer = self.sites[name].answer(message)
        return SiteAnswer(name, answer)

    def ask_older(self, name: str, message: bytes) -> SiteAnswer:
        """Puts an earlier copy of a site's folder in place; the newest one back, if it refuses."""
        place, newest = self.deployed.folder / name, self.deployed.folder / f"{name}, newest"
        self.sites[name].close()  # type: ignore[attr-defined]
        place.rename(newest)
        shutil.copytree(self.copies.get(name, newest), place)
        self.sites[name] = self.deployed.open(name)
        answer = self.sites[name].answer(message)
        if codec.read_head(answer, ReplyHead, 2**20).refused:
            self.happened["an older copy was refused"] += 1
            self.sites[name].close()  # type: ignore[attr-defined]
            shutil.rmtree(place)
            newest.rename(place)
            self.sites[name] = self.deployed.open(name)
        else:  # nothing had changed since
            shutil.rmtree(newest)
        self.copies[name] = self.deployed.folder / f"{name}, a copy"
        shutil.copytree(place, self.copies[name], dirs_exist_ok=True)
        return SiteAnswer(name, answer)

    def reopen(self, name: str) -> None:
        self.sites[name].close()  # type: ignore[attr-defined]
        self.sites[name] = self.deployed.open(name)


def test_a_run_with_200_faults_is_the_simulation_of_its_record(tmp_path: Path) -> None:
    experiment = experiment_at_sites(METHOD, DATA, rounds=ROUNDS, eval_every=20, epochs=1)
    plan = ServePlan(experiment=experiment.toml(), deadline=60)
    out = tmp_path / "run"
    with Deployment(tmp_path / "sites", experiment, DATA) as deployed:
        corridor = RoughCorridor(deployed, seed=1)
        while True:
            try:
                run = run_rounds(plan, out, corridor, bool)
                break
            except ServerDied:
                continue
        held = [site.states.list_held() for site in corridor.sites.values()]
    assert corridor.happened.total() - corridor.happened["none"] >= 200
    assert set(corridor.happened) == {*FAULTS, "an older copy was refused"}
    assert {round for round, _ in read_calls(out)} == set(range(1, ROUNDS + 1))
    end = replay(out, experiment, DATA)
    assert end.missed > 50
    assert run.digest == end.digest
    for i, states in enumerate(held):
        assert end.own.get(i, "") in states


def test_the_record_of_another_experiment_is_refused(tmp_path: Path) -> None:
    experiment = experiment_at_sites(METHOD, DATA, rounds=1)
    with Deployment(tmp_path / "sites", experiment, DATA) as deployed:
        deployed.run(tmp_path / "run")
    other = experiment_at_sites(METHOD, DATA, rounds=1, seed=4)  # it draws another cohort
    with raises(IsthmusError):
        replay(tmp_path / "run", other, DATA)
    path = tmp_path / "run" / "calls.csv"
    path.write_text(path.read_text().replace("1,1,", "1,one,"))
    with raises(IsthmusError):
        replay(tmp_path / "run", experiment, DATA)


def test_a_run_whose_sites_all_refuse_stops_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of the server alone, say: no round is done without anybody."""
    data, experiment = DATA, experiment_at_sites(METHOD, DATA, rounds=3)
    with Deployment(tmp_path / "sites", experiment, data) as deployed:
        deployed.run(tmp_path / "run", lambda: True)
        with monkeypatch.context() as patch:
            patch.setattr("isthmus_sites.engine.VERSION", "9.9")
            with raises(IsthmusError):
                deployed.run(tmp_path / "run")
        *_, last = (tmp_path / "run" / "rounds.csv").read_text().splitlines()
        assert last.startswith("1,")
        run = deployed.run(tmp_path / "run")
    assert run.digest == replay(tmp_path / "run", experiment, data).digest
