"""How a deployed run stands, as its server's people and its sites' people see it."""

import datetime as dt
import http.client
import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from commands import Isthmus
from deployed import Corridor, Deployment, experiment_at_sites, simulate
from golden import check
from isthmus import Experiment
from isthmus.cohort import Round
from isthmus.evaluation import evaluate
from isthmus.system.files import hold_lock
from isthmus_sites import codec
from isthmus_sites.cli.serve import open_page, watch
from isthmus_sites.codec import CallHead, ReplyHead
from isthmus_sites.folders import ServerFolder, SiteFolder, write_table
from isthmus_sites.preparation import consent, find_data, propose, register, train_alone
from isthmus_sites.protocol import ServePlan, SiteAnswer, write_event
from isthmus_sites.rehearsal import write_share
from isthmus_sites.server import conduct, run_rounds
from isthmus_sites.site import open_site
from isthmus_sites.status import collect_site_status, collect_status
from isthmus_sites.views import draw, draw_site, render
from small import federation, played

ODD = "<b>&"  # what a page must not take for its own


class Unreliable(Corridor):
    """In rounds 1 to 3 a site is absent, late or refuses; `rounds` are those that are done."""

    rounds = 0

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        for answer in Corridor.ask(self, messages, seconds):
            assert answer is not None
            if answer.site == "site-1" and self.rounds < 3:
                yield self.spoil(answer, messages["site-1"])
            else:
                yield answer

    def spoil(self, answer: SiteAnswer, message: bytes) -> SiteAnswer:
        if self.rounds < 2:
            return SiteAnswer(answer.site, None, ("absent", "late")[self.rounds])
        head = codec.read_head(message, CallHead, 10**6)
        return answer._replace(message=codec.write(ReplyHead(head.call, "floor")))


def lay_out(folder: Path, plan: ServePlan) -> ServerFolder:
    """Writes what `isthmus serve init`, `admit` and `run` leave in a server's folder."""
    server = ServerFolder(folder)
    folder.mkdir()
    write_table(server.settings, {"host": "127.0.0.1", "port": 8002})
    until = dt.datetime(2099, 5, 1, tzinfo=dt.UTC)
    row = {"certificate": "", "admitted": until, "until": until, "revoked": False}
    names = [f"site-{i}" for i in range(6)]
    rows = {name: row | {"revoked": name == "site-2"} for name in names[:-1]}
    rows["site-4"] |= {"left": dt.datetime(2026, 5, 1, tzinfo=dt.UTC)}
    write_table(server.sites, rows)
    plan.save(server)
    write_event(server.events, "job", text=f"a job with {ODD}")
    write_event(server.events, "lost", text="site-3 was lost", site="site-3")
    return server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's folder after a run of four rounds, whose six sites did not answer every call."""
    root, data = tmp_path_factory.mktemp("status"), federation()
    experiment = experiment_at_sites("superfed-mm", data, clients_per_round=6, eval_every=2)
    plan = ServePlan(experiment=experiment.toml(), deadline=60, quorum=0.5)
    server = lay_out(root / "server", plan)
    with Deployment(root / "sites", experiment, data) as made:
        corridor = Unreliable(made.corridor.sites)

        def count() -> bool:
            corridor.rounds += 1
            return False

        run_rounds(plan, server.run, corridor, count)
    return server.root


def print_wide(drawn: Any) -> str:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(drawn)
    return console.export_text()


def show(folder: Path) -> str:
    return print_wide(draw(collect_status(folder)))


def test_a_status_says_who_answered_and_why_not(folder: Path) -> None:
    """Calls: four rounds of one each, and an evaluation after rounds 2 and 4."""
    facts = collect_status(folder)
    one, two, *_, four, last = facts["sites"][1:]
    assert (one["asked"], one["answered"], one["late"], one["absent"]) == (6, 2, 2, 1)
    assert one["refused"] == 1
    assert one["why"]["it refused: it has too few examples, of all or of a class"] == 1
    assert one["last_answered_round"] == 4
    assert (two["state"], last["state"]) == ("revoked", "not admitted")
    assert four["state"] == "left"
    assert facts["sites"][3]["lost"] == 1
    text = show(folder)
    check(text)
    assert "2099-05-01" in text


def test_a_status_says_how_far_a_run_is_and_how_models_do(folder: Path) -> None:
    facts = collect_status(folder)
    assert (facts["status"], facts["rounds_done"], facts["rounds"]) == ("finished", 4, 4)
    assert facts["seconds_left"] == 0
    assert facts["down_bytes"] > 0 < facts["up_bytes"]
    assert facts["evaluation"]["round"] == 4
    (tested,) = [
        each
        for each in facts["evaluation"]["models"]
        if (each["model"], each["split"]) == ("personal", "test")
    ]
    assert len(tested["sites"]) == 6
    ones = [site["figures"]["personal test"] for site in facts["sites"]]
    assert tested["mean_top1"] == pytest.approx(sum(one["top1"] for one in ones) / 6)
    right = sum(one["top1"] * one["n"] for one in ones)
    assert tested["examples"] == sum(one["n"] for one in ones)
    assert tested["pooled_top1"] == pytest.approx(right / tested["examples"])
    assert [round for round, _ in facts["curves"]["personal"]] == [2, 4]


def test_figures_that_sites_keep_to_themselves_are_shown_in_sums(tmp_path: Path) -> None:
    data = federation()
    experiment = experiment_at_sites("fedavg", data, rounds=1)
    plan = ServePlan(experiment=experiment.toml())
    server = lay_out(tmp_path / "server", plan)
    with Deployment(tmp_path / "sites", experiment, data, figures=False) as made:
        run_rounds(plan, server.run, made.corridor, lambda: False)
    facts = collect_status(server.root)
    assert all(not site["figures"] for site in facts["sites"])
    for each in facts["evaluation"]["models"]:
        assert each["mean_top1"] is None
        assert each["pooled_top1"] > 0
    assert render(facts)


def test_a_status_before_the_first_round_names_what_it_waits_for(tmp_path: Path) -> None:
    experiment = experiment_at_sites("fedavg", federation(), eval_every=3)
    server = lay_out(tmp_path / "server", ServePlan(experiment=experiment.toml()))
    assert collect_status(server.root)["status"] == "nobody serves it"
    with hold_lock(server.root / "serve.lock", 1, lambda: None):
        assert collect_status(server.root)["status"] == "running"
        write_event(server.events, "stopped", text="stopped")
        assert collect_status(server.root)["status"] == "starting"
        write_event(server.events, "waiting", text="2 of 6 sites")
        facts = collect_status(server.root)
    assert (facts["status"], facts["rounds_done"]) == ("waiting for sites", 0)
    assert facts["seconds_left"] is None
    text = show(server.root)
    check(text)
    assert "2 of 6 sites" in text
    assert "No evaluation yet" in render(facts)


class Slow(Corridor):
    """A site does not answer the call of round 2 yet: who looks meanwhile is told so."""

    def __init__(self, sites: Mapping[str, Any], look: Callable[[], None]) -> None:
        Corridor.__init__(self, sites)
        self.look, self.calls = look, 0

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        self.calls += 1
        for answer in Corridor.ask(self, messages, seconds):
            if self.calls == 2 and answer is not None and answer.site == "site-2":
                time.sleep(0.25)
                yield None
                self.look()
            yield answer


def test_a_status_says_who_is_waited_for_in_the_call_under_way(tmp_path: Path) -> None:
    data = federation((30, 30, 30))
    experiment = experiment_at_sites("fedavg", data, rounds=2, eval_every=2)
    plan = ServePlan(experiment=experiment.toml())
    server = lay_out(tmp_path / "server", plan)
    seen: list[dict[str, Any]] = []
    with (
        Deployment(tmp_path / "sites", experiment, data) as made,
        hold_lock(server.root / "serve.lock", 1, lambda: None),
    ):
        write_event(server.events, "job", text="a job")
        corridor = Slow(made.corridor.sites, lambda: seen.append(collect_status(server.root)))
        conduct(server.root, corridor, lambda: False)
        (facts,) = seen
        call = facts["call"]
        assert (call["round"], call["function"], call["missing"]) == (2, "local", {})
        assert (call["answered"], call["waiting"]) == (["site-0", "site-1"], ["site-2"])
        check(print_wide(draw(facts)))
        assert "waiting for site-2" in render(facts)
        assert collect_status(server.root)["call"] is None  # it is finished
        (server.run / "summary.json").unlink()
        call = collect_status(server.root)["call"]
        assert (call["function"], call["waiting"]) == ("run: end", [])
        write_event(server.events, "job", text="another job")
        assert collect_status(server.root)["call"] is None


def test_the_command_shows_a_status_to_people_and_programs(isthmus: Isthmus, folder: Path) -> None:
    place = ("--folder", folder)
    said = isthmus("serve", "status", *place)
    assert (said.code, said.err) == (0, "")
    assert "rounds: 4 of 4" in said.out
    facts = json.loads(isthmus("serve", "status", "--json", *place).out)
    assert facts["sites"][1]["refused"] == 1
    said = isthmus("serve", "status", "--watch", *place)  # no terminal: lines, and it is finished
    check(said.out)
    assert len(said.out.splitlines()) == 1


def test_what_has_no_status_is_one_line(isthmus: Isthmus, tmp_path: Path) -> None:
    check(isthmus("serve", "status").mistake)
    server = ServerFolder(tmp_path)
    write_table(server.settings, {"host": "127.0.0.1"})
    write_table(server.sites, {"ulm": {"revoked": False}, "bonn": {"revoked": True}})
    check(isthmus("serve", "status").mistake)
    server.plan.write_text("experiment = 3")
    check(isthmus("serve", "status").mistake)
    check(isthmus("serve", "status", "8080").mistake)
    check(isthmus("serve", "status", "--page", "--json").mistake)


def test_a_live_view_is_drawn_again_and_leaves_its_last_picture(folder: Path) -> None:
    console = Console(force_terminal=True, width=100, height=40, record=True)
    with console.capture() as seen:
        watch(folder, console, pause=0.01)
    assert "rounds: 4 of 4" in seen.get().rpartition("\x1b[?1049l")[2]


@pytest.fixture
def ask(folder: Path) -> Iterator[Any]:
    """Sends a request to the page of a run."""
    with open_page(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        port = server.server_address[1]

        def ask(method: str = "GET", path: str = "/", **headers: str) -> tuple[int, Any, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, answer.headers, text

        yield ask
        server.shutdown()
        thread.join()


def test_the_page_shows_the_run_and_nothing_in_it_is_code(ask: Any) -> None:
    status, headers, text = ask()
    assert status == 200
    check(text)
    assert "a job with &lt;b&gt;&amp;" in text
    assert ODD not in text
    assert "<script" not in text
    assert 'http-equiv="refresh"' not in text  # it is finished
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"


def test_the_page_loads_itself_again_while_the_run_goes_on(folder: Path) -> None:
    facts = collect_status(folder) | {"status": "running"}
    assert '<meta http-equiv="refresh" content="5">' in render(facts)


def test_the_page_answers_nothing_else(ask: Any) -> None:
    """Neither another path or verb, nor a page elsewhere whose name leads to this machine."""
    assert [ask(path=path)[0] for path in ("/x", "/?a=1", "/../plan.toml")] == [404] * 3
    assert [ask(verb)[0] for verb in ("POST", "PUT", "DELETE", "HEAD")] == [501] * 4
    assert ask(Host="evil.example")[0] == 403


def test_a_port_that_is_taken_is_one_line(isthmus: Isthmus, folder: Path) -> None:
    with open_page(folder) as server:
        said = isthmus("serve", "status", "--folder", folder, "--page", server.server_address[1])
    check(said.mistake)
    check(isthmus("serve", "status", "--folder", folder, "--page", 70000).mistake)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of three sites after a run of four rounds; one of them got an odd message too."""
    root, data = tmp_path_factory.mktemp("standing"), federation((40, 50, 45))
    experiment = experiment_at_sites("superfed-mm", data, eval_every=2)
    (root / "study.toml").write_text(experiment.toml())
    opened = {}
    for i, name in enumerate(experiment.data["names"]):
        place = SiteFolder(root / name)
        settings = {"name": name, "host": "127.0.0.1", "port": 8002}
        (root / name).mkdir()
        write_table(place.settings, settings | {"until": dt.datetime(2099, 5, 1, tzinfo=dt.UTC)})
        write_event(place.events, "connected")
        write_share(data, i, root / name / "data.npz")
        known = register(place, f"{root / name}/data.npz", {})
        consent(place, experiment, find_data(place, known))
        opened[name] = open_site(root / name)
    opened["site-1"].answer(b"odd")
    plan = ServePlan(experiment=experiment.toml())
    run_rounds(plan, root / "run", Corridor(opened), lambda: False)
    for site in opened.values():
        site.close()
    return root


def test_a_site_is_told_what_it_sent_and_refused_by_round(sites: Path) -> None:
    """Each round has one call to train; rounds 2 and 4 are evaluated; the last one ends the run."""
    facts = collect_site_status(SiteFolder(sites / "site-1"))
    assert [row["calls"] for row in facts["rounds"]] == [1, 2, 1, 3]
    assert all(row["got_bytes"] > 0 < row["sent_bytes"] for row in facts["rounds"])
    assert facts["refused"] == {"message": 1}
    assert sum(row["sent_bytes"] for row in facts["rounds"]) < facts["sent_bytes"]
    text = print_wide(draw_site(facts))
    check(text)
    assert "certificate: until 2099-05-01" in text
    assert "connection: connected" in text


def test_a_site_sees_its_model_beside_the_shared_one_and_beside_training_alone(
    isthmus: Isthmus, sites: Path
) -> None:
    place = ("--folder", sites / "site-1")
    facts = json.loads(isthmus("join", "status", "--json", *place).out)
    assert [row["round"] for row in facts["evaluations"]] == [2, 4]
    losses = {row["round"]: row["personal validation"]["loss"] for row in facts["evaluations"]}
    assert facts["best_round"] == min(losses, key=lambda round: losses[round])
    assert facts["alone"] is None
    said = isthmus("join", "check", sites / "study.toml", "--alone", *place)
    assert said.code == 0, said.err
    check(said.out)
    said = isthmus("join", "status", *place)
    row = next(line for line in said.out.splitlines() if line.startswith("alone "))
    assert "%" in row
    assert f"{facts['best_round']} *" in said.out


def test_training_alone_at_a_site_is_what_it_is_in_simulation(sites: Path) -> None:
    """The same loss to the last bit: streams belong to a client's number, and so does its split."""
    experiment = Experiment.load(sites / "study.toml")
    place = SiteFolder(sites / "site-2")
    found = train_alone(place, propose(experiment, "site-2", find_data(place)))
    local = Experiment(**(experiment.table() | {"method": "local"}))
    setting = simulate(local, federation((40, 50, 45)))
    end = played(setting, 4)
    (tested,) = [
        each
        for each in evaluate(Round(setting, 3, end.own), end.server).scores
        if (each.model, each.split) == ("personal", "test")
    ]
    assert found["figures"]["alone test"]["loss"] == tested.figures.loss[2]
    assert found["figures"]["alone test"]["top1"] == tested.figures.top1[2]


def test_a_site_without_agreement_has_a_standing_and_nothing_to_check_is_one_line(
    isthmus: Isthmus, tmp_path: Path
) -> None:
    write_table(SiteFolder(tmp_path).settings, {"name": "ulm"})
    said = isthmus("join", "status")
    assert said.code == 0, said.err
    check(said.out)
    check(isthmus("join", "check").mistake)
    check(isthmus("join", "check", "--alone").mistake)
    Path("study.toml").write_text("rounds = 1")
    check(isthmus("join", "check", "study.toml", "--alone").mistake)
