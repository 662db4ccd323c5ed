"""Sites that are no clients of a run get models of their own, and no round has anything of them."""

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import Isthmus
from deployed import Corridor, Deployment, digest_at_sites, experiment_at_sites, simulate
from golden import check
from isthmus import Experiment
from isthmus.client import Client, Point
from isthmus.engines.loop import Loop
from isthmus.evaluation import Score
from isthmus.method import State
from isthmus.run import record as reader
from isthmus.run.newcomers import join, make_visit, reach_newcomers
from isthmus.run.open import place_model
from isthmus.run.store import Progress
from isthmus_sites import codec
from isthmus_sites.audit import read_lines
from isthmus_sites.codec import VERSION, CallHead, ReplyHead
from isthmus_sites.folders import ServerFolder, SiteFolder, write_table
from isthmus_sites.preparation import consent, find_data, register
from isthmus_sites.protocol import ServePlan, SiteAnswer
from isthmus_sites.rehearsal import write_share
from isthmus_sites.replay import read_calls, replay
from isthmus_sites.server import SiteJoin
from isthmus_sites.site import open_model, open_site
from isthmus_sites.status import collect_status
from isthmus_sites.views import render
from small import federation, played

# Of each way to join: one's own part, a whole model, after counting labels, by a place.
METHODS: list[Any] = [
    *("fedper", "fedpac", "ditto", "superfed-mm", "fedsimsup-tcl"),
    *({"name": name, "tau": 1} for name in ("floco", "floco-plus")),
]
MEMBERS, ALONE = federation((14, 30, 23)), federation((25,), seed=9)
LATER, CENSUS = "later", ("census",)


def settle_in(root: Path, experiment: Experiment, name: str = LATER, **terms: Any) -> SiteFolder:
    """The folder of a site that agreed to join as a newcomer."""
    place = SiteFolder(root / name)
    place.root.mkdir(parents=True)
    write_table(place.settings, {"name": name})
    write_share(ALONE, 0, place.root / "data.npz")
    register(place, f"{place.root}/data.npz", {})
    lowest = {"minimum_examples": 1, "minimum_label_count": 0}
    consent(place, experiment, find_data(place), newcomer=True, **{**lowest, **terms})
    return place


class Rounds:
    """Counts rounds; from some of them on others are there, and what then is is looked at."""

    def __init__(self, come: Mapping[int, Callable[[], None]]):
        self.done, self.come = 0, come

    def __call__(self) -> bool:
        self.done += 1
        self.come.get(self.done, lambda: None)()
        return False


def simulated_model(experiment: Experiment, progress: Progress) -> Point:
    """What the one newcomer builds in simulation after the rounds so far."""
    visit = make_visit(simulate(experiment, MEMBERS), ALONE, Loop())
    clients = reach_newcomers(visit, progress)
    delivery = visit.method.deliver(progress.server, clients)

    def build(client: Client, own: State, *received: State) -> Point:
        own = visit.method.join(client, *received)
        return place_model(visit.method.personal(client, own, *received))

    (found,) = clients.visit(build, delivery, purpose="join")
    return Point(*found[0])


def same(one: Score, other: Score) -> bool:
    pairs = zip(one.figures, other.figures, strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_newcomer_gets_what_one_gets_in_simulation_and_changes_no_round(
    method: Any, tmp_path: Path
) -> None:
    """It comes during round 1, is asked again after the evaluation of round 2, and at the end."""
    experiment = experiment_at_sites(method, MEMBERS, rounds=3, epochs=1, eval_every=2)
    place = settle_in(tmp_path / "sites", experiment, disclose=CENSUS[: "simsup" in str(method)])
    joined: list[SiteJoin] = []
    with Deployment(tmp_path / "sites", experiment, MEMBERS) as deployed:
        sites, site, models = deployed.corridor.sites, open_site(place.root), {}
        look = {
            1: lambda: sites.update({LATER: site}),
            2: lambda: models.update({1: site.personal("last")}),
            3: lambda: models.update({2: site.personal("last")}),
        }
        run = deployed.run(tmp_path / "run", Rounds(look), joined.append)
        models[3] = site.personal("last")
    alone = simulate(experiment, MEMBERS)
    after = {1: played(alone, 1)}
    after[2] = played(alone, 1, after[1])
    end = after[3] = played(alone, 1, after[2])
    assert run.digest == digest_at_sites(end)
    assert [(each.rounds, each.outcome) for each in joined] == [
        *((1, "answered"), (2, "answered"), (3, "answered"))
    ]
    for each in joined:
        expected = simulated_model(experiment, after[each.rounds])
        assert torch.equal(models[each.rounds].w, expected.w)
        (simulated,) = join(alone, after[each.rounds], ALONE, [None])
        assert len(each.scores) == len(simulated.scores)
        assert all(same(*pair) for pair in zip(each.scores, simulated.scores, strict=True))


def plan_one(method: Any = "superfed-mm", **changes: Any) -> Experiment:
    given = {"rounds": 2, "epochs": 1, "eval_every": 1} | changes
    return experiment_at_sites(method, MEMBERS, **given)


def read_joins(run: Path) -> list[list[str]]:
    """The rounds, sites and outcomes that a run's directory records."""
    lines = (run / "joins.csv").read_text().splitlines()
    rows = [line.split(",", 3) for line in lines if not line.startswith("#")]
    assert rows[0] == ["time", "round", "site", "outcome"]
    return [row[1:] for row in rows[1:]]


def test_figures_of_a_newcomer_stay_at_home_unless_it_agreed(tmp_path: Path) -> None:
    experiment = plan_one()
    places = {
        name: settle_in(tmp_path, experiment, name, figures=name == "open")
        for name in ("open", "shut")
    }
    with Deployment(tmp_path, experiment, MEMBERS) as deployed:
        corridor = deployed.corridor
        corridor.sites |= {name: open_site(place.root) for name, place in places.items()}
        deployed.run(tmp_path / "run")
        replies = {name: answer for name, _, answer in corridor.sent}
    assert read_joins(tmp_path / "run") == [
        [str(round), name, "answered"] for round in (1, 2) for name in ("open", "shut")
    ]
    table = reader.read(tmp_path / "run").newcomers
    assert set(table.data.tolist()) == {"open"}
    assert set(table.round.tolist()) == {1, 2}
    head = codec.read_head(replies["shut"], ReplyHead, 10**6)
    assert replies["shut"] == codec.write(head)  # nothing but a head
    for place in places.values():
        rows = json.loads(next(place.state.glob("*.figures.json")).read_text())
        assert [row["t"] for row in rows] == [0, 1]
        assert rows[0]["figures"]["personal test"]["n"] == len(ALONE.splits[0].test)


def test_a_newcomer_agrees_predicts_and_sees_how_it_stands(
    tmp_path: Path, isthmus: Isthmus
) -> None:
    experiment = plan_one()
    (tmp_path / "study.toml").write_text(experiment.toml())
    (tmp_path / LATER).mkdir()
    write_table(SiteFolder(tmp_path / LATER).settings, {"name": LATER})
    write_share(ALONE, 0, tmp_path / "mine.npz")
    place = ("--folder", LATER)
    said = isthmus("join", "check", "study.toml", "--data", "mine.npz", "--alone", *place)
    assert said.code == 0, said.err
    check(said.out)
    agree = ("join", "agree", "study.toml", *place, "--minimum-examples", 5)
    check(isthmus(*agree).mistake)
    said = isthmus(*agree, "--newcomer", "--no-figures")
    assert said.code == 0, said.err
    check(said.out)
    with Deployment(tmp_path / "sites", experiment, MEMBERS) as deployed:
        site = deployed.corridor.sites[LATER] = open_site(tmp_path / LATER)
        deployed.run(tmp_path / "run")
        expected = site.personal("last")
    model, _, _ = open_model(tmp_path / LATER, "last")
    assert torch.equal(model.w, expected.w)
    np.savez(tmp_path / "new.npz", x=ALONE.arrays.x[:4])
    assert isthmus("predict", "--data", "new.npz", *place).code == 0
    check(isthmus("join", "status", *place).out)
    facts = json.loads(isthmus("join", "status", "--json", *place).out)
    assert [row["round"] for row in facts["evaluations"]] == [1, 2]
    assert [row["calls"] for row in facts["rounds"]] == [1, 1]
    assert facts["alone"] is not None


def test_a_client_of_a_run_is_no_newcomer_to_it(tmp_path: Path, isthmus: Isthmus) -> None:
    experiment = plan_one()
    (tmp_path / "study.toml").write_text(experiment.toml())
    write_table(SiteFolder(tmp_path).settings, {"name": "site-1"})
    write_share(ALONE, 0, tmp_path / "mine.npz")
    isthmus("join", "check", "--data", "mine.npz")
    check(isthmus("join", "agree", "study.toml", "--newcomer").mistake)


def test_a_newcomer_takes_what_isthmus_adapt_gives_a_copy_of_the_run(
    tmp_path: Path, isthmus: Isthmus
) -> None:
    """The two ways come to the same figures, to the last digit."""
    experiment = plan_one("fedsimsup")
    place = settle_in(tmp_path, experiment, disclose=CENSUS)
    with Deployment(tmp_path, experiment, MEMBERS) as deployed:
        deployed.corridor.sites[LATER] = open_site(place.root)
        deployed.run(tmp_path / "run")
    assert isthmus("adapt", "run", "--data", f"{LATER}/data.npz", "--shots", 99).code == 0
    table = reader.read(tmp_path / "run").newcomers
    last = table.round == 2
    here, there = (last & (table.data == LATER), last & (table.data != LATER))
    assert here.sum() == there.sum() == 2  # validation and test
    assert table.loss[here].tolist() == table.loss[there].tolist()


class Slow(Corridor):
    """A newcomer does not answer before the end; it is waited for once."""

    def __init__(self, sites: Mapping[str, Any]):
        Corridor.__init__(self, sites)
        self.waited = False

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        if LATER not in messages:
            yield from Corridor.ask(self, messages, seconds)
        elif self.waited:
            yield SiteAnswer(LATER, None, "late")
        else:
            self.waited = True
            while True:
                time.sleep(0.01)
                yield None


def test_a_slow_newcomer_is_waited_for_no_longer_than_a_grace_and_once(tmp_path: Path) -> None:
    experiment = plan_one(rounds=4)
    with Deployment(tmp_path, experiment, MEMBERS) as deployed:
        sites = deployed.corridor.sites | {LATER: deployed.corridor.sites["site-0"]}
        deployed.corridor = Slow(sites)
        run = deployed.run(tmp_path / "run", deadline=600.0, grace=0.1)
    assert read_joins(tmp_path / "run") == [["1", LATER, "late"], ["4", LATER, "late"]]
    end = played(simulate(experiment, MEMBERS), 4)
    assert run.digest == digest_at_sites(end)


def test_a_newcomer_that_refuses_is_named_and_asked_again_at_the_end(tmp_path: Path) -> None:
    experiment = plan_one("fedsimsup", rounds=3)
    other = plan_one("fedsimsup", rounds=3, lr=0.2)
    silent = settle_in(tmp_path, experiment, "silent")  # it does not tell its labels
    astray = settle_in(tmp_path, other, "astray", disclose=CENSUS)
    with Deployment(tmp_path, experiment, MEMBERS) as deployed:
        deployed.corridor.sites |= {
            place.root.name: open_site(place.root) for place in (silent, astray)
        }
        deployed.run(tmp_path / "run")
    refusals = {
        "silent": "refused:disclosure",
        "astray": "refused:agreement",
    }
    assert read_joins(tmp_path / "run") == [
        [str(round), name, refusals[name]] for round in (1, 3) for name in ("astray", "silent")
    ]


def test_a_server_may_have_no_newcomers(tmp_path: Path) -> None:
    experiment = plan_one()
    place = settle_in(tmp_path, experiment)
    with Deployment(tmp_path, experiment, MEMBERS) as deployed:
        deployed.corridor.sites[LATER] = open_site(place.root)
        deployed.run(tmp_path / "run", newcomers=False)
    assert not (tmp_path / "run" / "joins.csv").exists()
    assert not place.audit.exists()


def test_who_comes_after_the_last_round_joins_when_the_run_is_resumed(
    tmp_path: Path, isthmus: Isthmus
) -> None:
    experiment = plan_one()
    server = ServerFolder(tmp_path / "server")
    write_table(server.settings, {})
    ServePlan(experiment=experiment.toml()).save(server)
    with Deployment(tmp_path, experiment, MEMBERS) as deployed:
        first = deployed.run(server.run)
        place = settle_in(tmp_path, experiment)
        deployed.corridor.sites[LATER] = open_site(place.root)
        deployed.corridor.away = set(deployed.names)
        again = deployed.run(server.run)
        model = deployed.corridor.sites[LATER].personal("last")
    assert first.digest == again.digest
    progress = played(simulate(experiment, MEMBERS), 2)
    assert torch.equal(model.w, simulated_model(experiment, progress).w)
    assert read_joins(server.run) == [["2", LATER, "answered"]]
    write_table(server.sites, {})
    (shown,) = collect_status(server.root)["newcomers"]
    assert (shown["name"], shown["joined"], shown["asked"]) == (LATER, 1, 1)
    said = isthmus("serve", "status", "--folder", "server")
    share = f"{shown['top1']:.1%}".replace("%", " %")
    check(said.out)
    assert share in render(collect_status(server.root))
    summary = json.loads((server.run / "summary.json").read_text())
    assert (summary["status"], summary["digest"]) == ("finished", first.digest)
    check(isthmus("serve", "forget", LATER, "--folder", "server").out)
    assert not len(reader.read(server.run).newcomers.data)
    check(isthmus("serve", "forget", LATER, "--folder", "server").mistake)


def ask_newcomer(deployed: Deployment, t: int = 1, **changes: Any) -> tuple[CallHead, Any]:
    """A call as an honest server would make it after one round."""
    digest = deployed.agreements["site-0"].digest
    given = (digest, 3, "run: join", "join", t, 0, None, "ab" * 8, "", "", VERSION)
    server = deployed.setting.method.init(deployed.setting.task)
    return CallHead(*given)._replace(**changes), ((server,), (), (server.w,), ())


ODD: list[tuple[dict[str, Any], str]] = [
    ({"run": "0" * 16}, "agreement"),
    ({"client": 1}, "client"),
    ({"client": 4}, "client"),
    ({"function": "local", "purpose": "train"}, "function"),
    ({"function": "evaluation: score", "purpose": "evaluate"}, "function"),
    ({"function": "run: end", "purpose": ""}, "function"),
    ({"function": "data: sums", "purpose": "scales"}, "function"),
    ({"purpose": "train"}, "function"),
    ({"t": 0}, "round"),
    ({"t": 3}, "round"),
    ({"version": "0.0"}, "version"),
    ({"call": "../x"}, "message"),
]


def test_a_newcomer_answers_nothing_else(tmp_path: Path) -> None:
    experiment = plan_one()
    place = settle_in(tmp_path, experiment)
    with Deployment(tmp_path, experiment, MEMBERS) as deployed:
        site = deployed.corridor.sites[LATER] = open_site(place.root)

        def ask(head: CallHead, tensors: Any) -> str:
            return str(
                codec.read_head(site.answer(codec.write(head, tensors)), ReplyHead, 10**6).refused
            )

        for changes, refused in ODD:
            assert ask(*ask_newcomer(deployed, **changes)) == refused, changes
        head, (shared, each, (w,), scales) = ask_newcomer(deployed)
        assert ask(head, (shared, each, (w.double(),), scales)) == "form"
        assert ask(head, (shared, each, (w * torch.nan,), scales)) == "form"
        assert ask(head, (shared, each, (), scales)) == "form"
        assert ask(*ask_newcomer(deployed, 2)) == ""
        assert ask(*ask_newcomer(deployed, 1)) == "round"  # it has joined later than that
        assert site.states.digest() != ""
    lines = [line for line, _ in read_lines(place.audit)]
    assert [line["refused"] for line in lines][: len(ODD)] == [refused for _, refused in ODD]
    assert lines[-2]["function"] == "run: join"


@pytest.mark.parametrize(
    "method", ["superfed-mm", {"name": "floco", "tau": 1}, "fedsimsup"], ids=str
)
def test_a_client_whose_place_was_kept_is_in_from_the_round_in_which_it_comes(
    method: Any, tmp_path: Path
) -> None:
    """It missed what all are asked once, too: where FLOCO places them, and FedSimSup's census."""
    experiment = plan_one(method, rounds=5)
    with Deployment(tmp_path, experiment, MEMBERS) as deployed:
        deployed.corridor.away = {"site-1"}
        come = {3: deployed.corridor.away.clear}
        run = deployed.run(tmp_path / "run", Rounds(come), quorum=0.6)
        held = deployed.corridor.sites["site-1"].states.digest()  # type: ignore[attr-defined]
    end = replay(tmp_path / "run", experiment, MEMBERS)
    assert run.digest == end.digest
    assert held == end.own.get(1, "")
    calls = read_calls(tmp_path / "run")
    there = {round for (round, _), asked in calls.items() if asked.outcomes.get(1) == "answered"}
    assert there == {4, 5}


def test_places_are_kept_for_sites_that_are_not_admitted_yet(
    tmp_path: Path, isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr("os.execv", lambda program, words: started.extend(words))
    experiment = plan_one()
    (tmp_path / "study.toml").write_text(experiment.toml())
    server = ServerFolder(tmp_path / "server")
    write_table(server.settings, {})
    until = dt.datetime(2099, 5, 1, tzinfo=dt.UTC)
    row = {"certificate": "", "admitted": until, "until": until, "revoked": False}
    write_table(server.sites, {"site-0": row, "site-1": row})
    serve = ("serve", "run", "study.toml", "--folder", "server")
    check(isthmus(*serve).mistake)
    check(isthmus(*serve, "--quorum", 0.6, "--no-newcomers").out)
    assert "resume" in started
    assert not ServePlan.load(server).newcomers
