"""A site and its server, each of them honest, dishonest, killed, away, or older than it thinks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from commands import Isthmus
from deployed import Deployment, digest_at_sites, experiment_at_sites, simulate
from golden import check, raises
from isthmus import tree
from isthmus.cohort import Clients, Round
from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment
from isthmus.run import record as reader
from isthmus.run.open import deploy
from isthmus.run.store import Progress, digest_of
from isthmus_sites import codec
from isthmus_sites.audit import AuditLog, read_lines
from isthmus_sites.codec import VERSION, CallHead, ReplyHead
from isthmus_sites.engine import name_state
from isthmus_sites.folders import ServerFolder, write_table
from isthmus_sites.protocol import ServePlan
from isthmus_sites.server import run_rounds
from isthmus_sites.state import SiteModels
from odd_engines import Flaky
from small import advance, begin, federation, played

METHOD = "superfed-mm"


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployment]:
    experiment = experiment_at_sites(METHOD, federation(), clients_per_round=6)
    with Deployment(tmp_path, experiment, federation()) as made:
        yield made


def states(end: Progress) -> tuple[str, dict[int, str]]:
    """The server's digest, and those of the own states, wherever they are."""
    own = {
        i: name_state(state) if isinstance(state, torch.Tensor) else tree.digest([state])
        for i, state in end.own.items()
    }
    return digest_of(end._replace(own={})), own


def simulated(deployed: Deployment, rounds: int, lost: Any = None) -> tuple[str, dict[int, str]]:
    made = simulate(deployed.experiment, federation())
    if lost is not None:
        made = made._replace(engine=Flaky(lost))
    return states(played(made, rounds))


def test_a_round_that_the_server_forgot_is_played_again_to_the_same_bits(
    deployed: Deployment,
) -> None:
    """It dies after the sites answered and before it committed: they hold two states for a time."""
    before = played(deployed.setting, 1)
    for _ in range(2):
        deployed.corridor.away = {"site-0"}  # another cohort answers than will in the end
        advance(deployed.setting, before, evaluate=True)
    deployed.corridor.away = set()
    anew = deployed.setting._replace(engine=deployed.engine())
    assert states(played(anew, 3, before)) == simulated(deployed, 4)


def test_no_own_state_is_in_any_message(deployed: Deployment) -> None:
    end = played(simulate(deployed.experiment, federation()), 3)
    played(deployed.setting, 3)
    advance(deployed.setting, played(deployed.setting._replace(engine=deployed.engine()), 0), False)
    for i, own in end.own.items():
        private = own.wl.numpy().tobytes()[:64]
        assert any(name == f"site-{i}" for name, *_ in deployed.corridor.sent)
        assert not any(private in part for _, *parts in deployed.corridor.sent for part in parts)


def test_a_site_keeps_the_model_that_the_simulation_would_deploy(deployed: Deployment) -> None:
    alone = simulate(deployed.experiment, federation())
    here, there = played(deployed.setting, 3), played(alone, 3)
    here, _ = advance(deployed.setting, here, evaluate=True)
    there, _ = advance(alone, there, evaluate=True)
    site: Any = deployed.corridor.sites["site-2"]
    clients = Clients([2], Round(alone, 3, there.own))
    delivery = alone.method.deliver(there.server, clients)
    (expected,) = clients.visit(deploy, delivery)
    assert torch.equal(site.personal("last").w, expected[2].w)
    assert torch.equal(site.personal("best").w, expected[2].w)  # it was the only evaluation
    (row,) = SiteModels(deployed.folder / "site-2" / "state.lmdb").read_figures()
    assert row["figures"]["personal test"]["n"] == 4


def call(deployed: Deployment, i: int = 1, **changes: Any) -> tuple[CallHead, Any]:
    """A call as an honest server would make it in the first round."""
    head = CallHead(
        run=deployed.agreements["site-0"].digest,
        client=i,
        function="local",
        purpose="train",
        t=0,
        turn=0,
        choice=None,
        call="ab" * 8,
        committed="",
        accepted="",
        version=VERSION,
    )
    server = deployed.setting.method.init(deployed.setting.task)
    return head._replace(**changes), ((server,), (), (), ())


def ask(deployed: Deployment, message: bytes) -> ReplyHead:
    answer = deployed.corridor.sites["site-1"].answer(message)
    reply: ReplyHead = codec.read_head(answer, ReplyHead, deployed.forms.largest)
    return reply


ODD_HEADS: list[tuple[dict[str, Any], str]] = [
    ({"run": "0" * 16}, "agreement"),
    ({"i": 2}, "client"),
    ({"function": "personal"}, "function"),
    ({"function": "__class__"}, "function"),
    ({"purpose": "evaluate"}, "function"),
    ({"t": 4}, "round"),
    ({"committed": "12" * 8}, "state"),
    ({"accepted": "12" * 8}, "state"),
    ({"accepted": "../../x"}, "message"),
    ({"call": "x" * 5000}, "message"),
    ({"t": -1}, "message"),
    ({"turn": True}, "message"),
    ({"protocol": 2}, "message"),
    ({"version": "0.0"}, "version"),
]


@pytest.mark.parametrize(("changes", "refused"), ODD_HEADS, ids=lambda part: str(part)[:40])
def test_a_site_refuses_what_it_did_not_agree_to(
    deployed: Deployment, tmp_path: Path, changes: dict[str, Any], refused: str
) -> None:
    head, tensors = call(deployed, **changes)
    assert ask(deployed, codec.write(head, tensors)).refused == refused
    (line, _), *_ = reversed(list(read_lines(tmp_path / "site-1" / "audit.log")))
    assert line["refused"] == refused
    assert ask(deployed, codec.write(*call(deployed))).refused == ""  # nobody was harmed


def bend(deployed: Deployment, how: Callable[[torch.Tensor], torch.Tensor]) -> bytes:
    head, ((server,), *rest) = call(deployed)
    return codec.write(head, ((type(server)(how(server.w)),), *rest))


ODD_TENSORS: dict[str, Callable[[Deployment], bytes]] = {
    "longer": lambda d: bend(d, lambda w: torch.cat([w, w])),
    "double": lambda d: bend(d, lambda w: w.double()),
    "two axes": lambda d: bend(d, lambda w: w[None]),
    "nan": lambda d: bend(d, lambda w: w.index_fill(0, torch.tensor([3]), torch.nan)),
    "infinite": lambda d: bend(d, lambda w: w / 0),
    "none": lambda d: codec.write(call(d)[0], ()),
    "one more": lambda d: codec.write(call(d)[0], (*call(d)[1], torch.zeros(2))),
}


@pytest.mark.parametrize("name", ODD_TENSORS)
def test_a_site_refuses_other_tensors(deployed: Deployment, name: str) -> None:
    assert ask(deployed, ODD_TENSORS[name](deployed)).refused == "form"


@pytest.mark.parametrize("cut", [0, 3, 5, 40, -1, -7])
def test_a_site_refuses_half_a_message_and_one_that_is_too_large(
    deployed: Deployment, cut: int
) -> None:
    whole = codec.write(*call(deployed))
    assert ask(deployed, whole[:cut]).refused in ("message", "form")
    assert ask(deployed, whole + bytes(10**6)).refused == "message"


def test_a_site_answers_no_earlier_round(deployed: Deployment) -> None:
    progress = played(deployed.setting, 3)
    site = next(i for i in progress.own if i == 1)
    head, tensors = call(deployed, site)
    assert ask(deployed, codec.write(head, tensors)).refused in ("state", "round")


def test_what_a_site_cannot_compute_is_not_told_in_words(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("patient 4711")

    site: Any = deployed.corridor.sites["site-1"]
    monkeypatch.setattr(site.setting.engine, "run", fail)
    answer = site.answer(codec.write(*call(deployed)))
    assert codec.read_head(answer, ReplyHead, 10**6).refused == "failed"
    assert b"4711" not in answer


class Liar:
    """A site that answers something else."""

    def __init__(self, site: Any, lie: Callable[[bytes, bytes], bytes]):
        self.site = site
        self.lie = lie

    def answer(self, message: bytes) -> bytes:
        return self.lie(message, self.site.answer(message))

    def close(self) -> None:
        self.site.close()


def change_reply(answer: bytes, how: Callable[[Any], Any]) -> bytes:
    head = codec.read_head(answer, ReplyHead, 10**7)
    start = 4 + int.from_bytes(answer[:4], "little")
    w, n = tree.unpack(answer[start:], like=(torch.empty(0), torch.empty(0)))
    return codec.write(head, how((w, n)))


LIES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "nan": lambda _, answer: change_reply(answer, lambda r: (r[0] * torch.nan, r[1])),
    "shape": lambda _, answer: change_reply(answer, lambda r: (r[0][:-1], r[1])),
    "type": lambda _, answer: change_reply(answer, lambda r: (r[0].double(), r[1])),
    "large": lambda _, answer: answer + bytes(10**6),
    "empty": lambda _, answer: b"",
    "random": lambda _, answer: bytes(range(256)) * 8,
    "echo": lambda message, _: message,
    "another call": lambda _, answer: codec.write(ReplyHead("00" * 8)),
    "odd state": lambda _, answer: change_head(answer, own="zz"),
    "odd reason": lambda _, answer: change_head(answer, refused="because"),
}


def change_head(answer: bytes, **changes: Any) -> bytes:
    head = codec.read_head(answer, ReplyHead, 10**7)
    start = 4 + int.from_bytes(answer[:4], "little")
    return codec.write(head._replace(**changes))[: -len(tree.pack(()))] + answer[start:]


@pytest.mark.parametrize("name", LIES)
def test_a_server_takes_no_odd_answer(deployed: Deployment, name: str) -> None:
    """The round is the one in which this site's reply was lost."""
    corridor = deployed.corridor
    corridor.sites["site-1"] = Liar(corridor.sites["site-1"], LIES[name])
    before = played(deployed.setting, 1)
    end, step = advance(deployed.setting, before, evaluate=False)
    assert states(end) == simulated(deployed, 2, lambda t, i: i == 1)
    asked = {each.client: each.outcome for each in step.outcomes}
    assert asked.pop(1) != "answered"
    assert set(asked.values()) == {"answered"}


@pytest.mark.parametrize(
    ("terms", "refused", "function"),
    [
        ({"disclose": ()}, "refused:disclosure", "census"),
        ({"minimum_examples": 10**6}, "refused:floor", "local"),
        ({"minimum_label_count": 10**6}, "refused:floor", "census"),
    ],
)
def test_terms_of_a_consent_are_kept(
    tmp_path: Path, terms: dict[str, Any], refused: str, function: str
) -> None:
    experiment = experiment_at_sites("fedsimsup", federation())
    with Deployment(tmp_path, experiment, federation(), **terms) as deployed:
        _, step = advance(deployed.setting, begin(deployed.setting), evaluate=False)
    assert {each.function for each in step.outcomes if each.outcome == refused} == {function}


def test_a_log_that_was_changed_is_refused(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    for number in range(3):
        log.add(number=number)
    lines = (tmp_path / "audit.log").read_text().splitlines(keepends=True)
    (tmp_path / "audit.log").write_text("".join(lines) + lines[0][:20])  # a crash cut it off
    AuditLog(tmp_path / "audit.log").add(number=3)
    assert len(list(read_lines(tmp_path / "audit.log"))) == 3 + 1
    (tmp_path / "audit.log").write_text("".join([lines[0], lines[2]]))
    with raises(IsthmusError):
        AuditLog(tmp_path / "audit.log")


def test_a_deployed_run_is_an_ordinary_run_that_goes_on(tmp_path: Path) -> None:
    data = federation()
    experiment = experiment_at_sites(METHOD, data, rounds=4, eval_every=2)
    out = tmp_path / "run"
    with Deployment(tmp_path / "sites", experiment, data) as deployed:
        deployed.corridor.away = {"site-5"}
        half = deployed.run(out, lambda: True)
        assert half.progress.t == 1
        deployed.corridor.away = set()
        run = deployed.run(out)
        kept = {name: site.states.digest() for name, site in deployed.corridor.sites.items()}
    alone = simulate(experiment, data)
    end = played(alone._replace(engine=Flaky(lambda t, i: t == 0 and i == 5)), 4)
    assert run.digest == digest_at_sites(end)
    assert kept == {f"site-{i}": tree.digest([own]) for i, own in end.own.items()}
    read = reader.read(out)
    assert read.evaluated.tolist() == [2, 4]
    calls = (out / "calls.csv").read_text()
    assert calls.count(",local,") == 16


def test_a_run_is_not_continued_with_another_experiment(tmp_path: Path) -> None:
    data = federation()
    experiment = experiment_at_sites(METHOD, data)
    with Deployment(tmp_path / "sites", experiment, data) as deployed:
        deployed.run(tmp_path / "run", lambda: True)
        other = Experiment(**(experiment.table() | {"lr": 0.2}))
        with raises(IsthmusError):
            run_rounds(
                ServePlan(experiment=other.toml()), tmp_path / "run", deployed.corridor, bool
            )


@pytest.mark.parametrize(("private", "kept"), [({1, 2, 5}, {0, 3, 4}), ({1, 2}, {0, 3, 4})])
def test_figures_of_sites_that_keep_them_are_told_in_sums(
    tmp_path: Path, private: set[int], kept: set[int]
) -> None:
    """Of fewer than three sites nothing is told at all: a difference would tell them apart."""
    data = federation()
    experiment = experiment_at_sites(METHOD, data, rounds=1)
    with Deployment(tmp_path / "sites", experiment, data) as deployed:
        for i in private:
            site: Any = deployed.corridor.sites[f"site-{i}"]
            site.consent = site.consent.model_copy(update={"figures": False})
        run = deployed.run(tmp_path / "run")
    there = set(reader.read(tmp_path / "run").clients.client.tolist())
    assert there == kept | ({5} if 5 not in private else set())
    pooled = run.evaluation("personal").pooled
    assert pooled is not None
    tested = private if len(private) > 2 else set()
    counts = [len(data.splits[i].test) for i in there | tested]
    assert pooled.figures.n == sum(counts)


def test_a_site_of_another_version_takes_no_part(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_as_old(message: bytes) -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr("isthmus_sites.codec.VERSION", "0.0")
            return answer(message)

    one: Any = deployed.corridor.sites["site-1"]
    answer = one.answer
    monkeypatch.setattr(one, "answer", answer_as_old)
    _, step = advance(deployed.setting, begin(deployed.setting), evaluate=False)
    outcomes = {each.client: each.outcome for each in step.outcomes}
    assert outcomes.pop(1) == "refused:version"
    assert set(outcomes.values()) == {"answered"}


def test_a_site_that_leaves_is_forgotten_as_far_as_that_goes(
    tmp_path: Path, isthmus: Isthmus
) -> None:
    data = federation()
    experiment = experiment_at_sites(METHOD, data, rounds=2)
    place = ServerFolder(tmp_path / "server")
    write_table(place.settings, {})
    ServePlan(experiment=experiment.toml()).save(place)
    with Deployment(tmp_path / "sites", experiment, data) as deployed:
        run = deployed.run(place.run)
    before = reader.read(place.run)
    said = isthmus("serve", "forget", "site-2", "--folder", "server")
    assert said.code == 0, said.err
    after = reader.read(place.run)
    assert set(before.clients.client) - set(after.clients.client) == {2}
    assert after.summary.digest == run.digest
    assert after.summary.finished
    check(isthmus("serve", "forget", "site-9", "--folder", "server").mistake)
