"""FedSimSup: two phases, models that the server makes when they are needed, kinds of clients."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import exp, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import isthmus
from by_hand import client, task, vector
from golden import check, raises
from isthmus import Experiment, Federation, IsthmusError, federate, tree
from isthmus.cohort import Clients, Round
from isthmus.context import Call, Request, RunContext
from isthmus.engines.loop import Loop
from isthmus.engines.stacked import Stacked
from isthmus.methods.fedsimsup import replay
from isthmus.methods.fedsimsup.fedsimsup import FedSimSup, Own
from isthmus.methods.fedsimsup.replay import NEVER, Absentees, Server
from isthmus.models import card
from isthmus.models.ensemble import Ensemble
from isthmus.models.flat import Flat
from isthmus.run.export import export
from isthmus.run.newcomers import join
from isthmus.run.store import Progress, Store, digest_of
from isthmus.shelf import Shelf
from odd_engines import Flaky
from small import CLASSES, FEATURES, SIZES, advance, begin, federation, fitting, played, setting

NO = torch.tensor(False)
SEVERAL = fitting("fedsimsup-tcl")


def stub(t: int, rounds: int, shelf: dict[str, Tensor], clients: int = 3) -> Any:
    """As much of a cohort as the server's arithmetic looks at."""
    ids = list(range(clients))
    return SimpleNamespace(
        t=t, task=SimpleNamespace(rounds=rounds), shelf=shelf, total=clients, ids=ids
    )


def models(made: RunContext, end: Progress) -> list[Tensor]:
    """All clients' models after the rounds that are done."""
    everyone = Clients(range(made.task.clients), Round(made, end.t - 1, {}, shelf=Shelf(end.shelf)))
    model = made.method.absentees(made.task).models(end.server, everyone)
    return [model(i) for i in range(made.task.clients)]


class TestServer:
    def absent(self, t: int = 0, rounds: int = 10, p: Any = None, **changes: Any) -> float:
        """The third client's model, 3 before, after the first two sent 3 and 6 in round t."""
        rule = Absentees(torch.tensor([3.0]), "labels", 40.0, 3 / 7)
        shelf = {
            f"ids/{t}": torch.tensor([0, 1]),
            f"uploads/{t}": torch.tensor([[3.0], [6.0]]),
            "counts": torch.tensor(p or [[3, 0], [0, 4], [3, 4]]),
        }
        server = Server(torch.tensor([t, t, -1]), torch.zeros(3, dtype=torch.long))
        model = replace(rule, **changes).models(server, stub(t, rounds, shelf))
        assert (model(0).item(), model(1).item()) == (3.0, 6.0)  # exactly what they sent
        return model(2).item()

    def test_three_clients_worked_by_hand(self) -> None:
        """Label counts (3, 0), (0, 4) and (3, 4): lengths 3, 4 and 5.

        sim_20 = 9 / 15 = 0.6, sim_21 = 16 / 20 = 0.8. M = 3 + 4, K = 2, m_2 = 7: lam = 7 / 21. The
        participants' mean is (0.6 * 3 + 0.8 * 6) / 1.4 = 33 / 7, and with beta = 1 the third model
        becomes 2/3 * 3 + 1/3 * 33/7 = 2 + 11/7.
        """
        assert self.absent() == pytest.approx(2 + 11 / 7, abs=1e-6)

    def test_beta_slows_it_down(self) -> None:
        """c_beta T^gamma = 1 * 16^0.25 = 2; in the fourth round beta = (2 / 4)^2, a = 1/12."""
        found = self.absent(t=3, rounds=16, c_beta=1.0, gamma=0.25)
        assert found == pytest.approx(11 / 12 * 3 + 1 / 12 * 33 / 7, abs=1e-6)

    def test_without_similarity_sizes_or_nothing_weigh(self) -> None:
        """Sizes 1, 4 and 7: lam = 5 / (5 + 2 * 7), the mean is (1 * 3 + 4 * 6) / 5 = 27/5, so that
        the model becomes 14/19 * 3 + 5/19 * 27/5 = 69/19. With nothing: the plain average, 4.5.
        """
        sizes = self.absent(p=[[1], [4], [7]], similarity="sizes")
        assert sizes == pytest.approx(69 / 19, abs=1e-6)
        assert self.absent(p=[[1], [1], [1]], similarity="none") == 4.5

    def test_models_may_start_apart(self) -> None:
        """As by hand above, from 6 in place of 3: 2/3 * 6 + 11/7. Those that sent have what they
        sent, and a run draws as many starts as it has clients, the same again.
        """
        apart = self.absent(starts=lambda i: torch.tensor([3.0 * i]))
        assert apart == pytest.approx(4 + 11 / 7, abs=1e-6)
        own = setting({"name": "fedsimsup", "starts": "own"}, clients_per_round=1, rounds=2)
        first, again = (models(own, played(own, 1)) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert len({tuple(each.tolist()) for each in first}) == len(first)

    def test_zero_similarity_leaves_a_model_unchanged(self) -> None:
        assert self.absent(p=[[3, 0, 0], [0, 4, 0], [0, 0, 7]]) == 3.0
        assert self.absent(p=[[3, 0, 0], [0, 4, 0], [0, 0, 0]]) == 3.0

    def test_with_equal_sizes_lambda_is_a_half_whoever_takes_part(self) -> None:
        rule = Absentees(torch.zeros(1), "labels", 40.0, 3 / 7)
        p, server = torch.tensor([[5, 5]] * 6), rule.begin(6)._replace(since=torch.zeros(6))
        for count in (1, 2, 5):
            (change,) = rule.changes(server, p, 0, 10, torch.arange(count), [5])
            assert change is not None
            assert change.keep == 0.5
            assert change.shares == pytest.approx([0.5 / count] * count)

    @pytest.mark.parametrize(
        ("c_beta", "gamma", "turn", "end"),
        [
            (40, 3 / 7, 772, 0.596),
            (10, 1 / 3, 100, 0.01),
            (20, 2 / 5, 317, 0.1),
            (40, 0.4, 634, 0.4),
        ],
    )
    def test_beta_is_continuous_and_never_rises(
        self, c_beta: float, gamma: float, turn: int, end: float
    ) -> None:
        """The paper's pairs of constants, 1000 rounds: where beta turns, and where it ends.

        From one round to the next (c / t)^2 falls by less than 2 / c just after the turn at c.
        """
        rule = Absentees(torch.zeros(1), "labels", c_beta, gamma)
        beta = np.array([rule.beta(t, 1000) for t in range(1000)])
        falls = -np.diff(beta)
        assert (beta[: turn - 1] == 1).all()
        assert beta[turn + 1] < 1
        assert (falls >= 0).all()
        assert falls.max() < 2 / turn
        assert beta[-1] == pytest.approx(end, rel=0.02)
        (first,) = FedSimSup(c_beta=c_beta, gamma=gamma).schedule(1000)
        assert abs(first - turn) <= 1


class TestReplay:
    """Models made when they are needed are those of a server that changes all of them at once."""

    @pytest.mark.parametrize("block", [1, 2**26])
    @pytest.mark.parametrize("similarity", ["labels", "sizes", "none"])
    def test_to_the_last_bit(
        self, similarity: str, block: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Client 1 answers nothing in the first two rounds, client 4 never."""
        monkeypatch.setattr(replay, "REPLAYED_MODELS_BYTES", block)
        method = {"name": "fedsimsup", "similarity": similarity, "c_beta": 2.0, "gamma": 0.25}
        made = setting(
            method,
            Flaky(lambda t, i: i == 4 or (i == 1 and t < 2)),
            clients_per_round=2,
            rounds=9,
        )
        rule = made.method.absentees(made.task)
        end = begin(made)
        eager = [made.task.w0] * len(SIZES)
        for t in range(9):
            end, _ = advance(made, end, evaluate=False)
            if f"ids/{t}" not in end.shelf:
                continue  # both replies were lost
            ids, uploads = end.shelf[f"ids/{t}"], end.shelf[f"uploads/{t}"]
            p = end.shelf.get("counts", torch.ones(len(SIZES), 1))
            for i in range(len(SIZES)):
                if i in ids:
                    eager[i] = uploads[ids.tolist().index(i)]
                    continue
                (change,) = rule.changes(end.server, p, t, 9, ids, [i])
                eager[i] = eager[i] if change is None else change(eager[i], uploads)
            for lazy, at_once in zip(models(made, end), eager, strict=True):
                assert torch.equal(lazy, at_once)
        assert not torch.equal(eager[0], made.task.w0)

    def test_a_round_writes_what_its_participants_sent_and_nothing_else(self) -> None:
        """Of 1,000 clients three take part: 3 P parameters, three ids, three supervisors."""
        owner = np.repeat(np.arange(1_000), 5)
        x = np.random.default_rng(0).standard_normal((len(owner), FEATURES)).astype(np.float32)
        data = Federation.of(x, owner % CLASSES, owner, validation=0, seed=1)
        made = setting("fedsimsup", data=data, clients_per_round=3, epochs=1)
        end, first = advance(made, begin(made), evaluate=False)
        parameters = 3 * made.task.model.size * 4
        counts = 1_000 * CLASSES * 4
        assert sum(tensor.nbytes for tensor in first.shelf.values()) == parameters + 3 * 8 + counts
        assert first.cost.up_bytes == parameters + counts
        end, second = advance(made, end, evaluate=False)
        assert sum(tensor.nbytes for tensor in second.shelf.values()) == parameters + 3 * 8
        assert len(first.changed) == len(second.changed) == 3
        assert tree.nbytes(end.server) == 2 * 1_000 * 8

    def test_uploads_that_no_model_needs_are_taken_off_the_shelf(self) -> None:
        made = setting("fedsimsup", clients_per_round=3, rounds=12)
        end = begin(made)
        for _ in range(12):
            end, _ = advance(made, end, evaluate=False)
            oldest = int(end.server.last.min())
            kept = sorted(int(name.split("/")[1]) for name in end.shelf if "uploads" in name)
            assert kept == list(range(max(0, oldest), end.t))
        assert oldest > 0

    def test_a_killed_run_goes_on_from_its_shelf(self, tmp_path: Path) -> None:
        """On disk, stopped after three of seven rounds: the digest, and what was scored."""
        made = setting("fedsimsup", clients_per_round=2, rounds=7)
        whole = played(made, 7)
        store = Store(tmp_path / "run", made, "seed = 0\n").start()
        for _ in range(3):
            store.commit(isthmus.run.loop.advance(made, store.progress, evaluate=False))
        store.release()
        from isthmus.run.database import Database

        store = Store(
            tmp_path / "run", made, "seed = 0\n", Database(tmp_path / "run" / "state.lmdb")
        )
        store.start()
        for _ in range(4):
            step = isthmus.run.loop.advance(made, store.progress, evaluate=True)
            store.commit(step)
        assert digest_of(store.progress) == digest_of(whole)
        before = played(made, 6)
        assert repr(step.evaluation) == repr(advance(made, before, evaluate=True)[1].evaluation)
        store.close("stopped")


class TestPhases:
    def parts(self, **options: Any) -> tuple[FedSimSup, Any]:
        method = FedSimSup(supervisors=("own",), **options)
        network = task().model
        return method, task(others=(network,))

    def test_supervisor_first_then_the_shared_model(self) -> None:
        """One step each at x = 1, label 0, lr = 0.1, from theta = (0, 0) and s = (0, 0).

        A: p = (1/2, 1/2), so s = (0.05, -0.05) while theta stays. B: the sum's logits are now
        (0.05, -0.05), p0 = 1 / (1 + exp(-0.1)) = q, so theta = 0.1 (1 - q) (1, -1) while s stays.
        """
        method, settings = self.parts()
        here = client(method, settings, 0, u=[[], []])
        own, theta = method.local(here, Own(vector(0, 0), NO), vector(0, 0))
        assert own.s.tolist() == pytest.approx([0.05, -0.05], abs=1e-12)
        q = 1 / (1 + exp(-0.1))
        assert theta.tolist() == pytest.approx([0.1 * (1 - q), -0.1 * (1 - q)], abs=1e-12)
        assert bool(own.heard)

    def test_each_phase_leaves_the_other_network_as_it_is(self) -> None:
        """With a learning rate of (almost) nothing in a phase the other starts where it started.

        lr_s = 1e-30 moves s by less than the last bit of any parameter.
        """
        made = setting({"name": "fedsimsup", "lr_s": 1e-30})
        end, done = advance(made, begin(made), evaluate=False)
        for i in done.changed:
            assert torch.equal(end.own[i].s, made.method.own(made.task, i).s)
        moved = end.shelf["uploads/0"]
        assert not any(torch.equal(theta, made.task.w0) for theta in moved)
        still = setting({"name": "fedsimsup", "lr_s": 0.1}, lr=1e-30)
        end, done = advance(still, begin(still), evaluate=False)
        assert all(torch.equal(theta, still.task.w0) for theta in end.shelf["uploads/0"])
        for i in done.changed:
            assert not torch.equal(end.own[i].s, still.method.own(still.task, i).s)

    def test_the_frozen_network_sees_every_example_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Three passes of phase A, two of phase B, over the n training examples of client 1."""
        made = setting({"name": "fedsimsup", "tau_s": 3}, clients_per_round=1)
        seen: dict[int, int] = {}
        logits = Flat.logits

        def counting(self: Flat, w: Tensor, x: Tensor) -> Tensor:
            seen[id(self)] = seen.get(id(self), 0) + len(x)
            return logits(self, w, x)

        monkeypatch.setattr(Flat, "logits", counting)
        Clients([1], Round(made, 0, {})).map(made.method.local, made.task.w0)
        n, *_ = made.federation.sizes(1)
        assert seen == {id(made.task.model): n + 2 * n, id(made.task.others[0]): 3 * n + n}

    def test_serial_trains_the_head_then_the_body_and_sends_the_body(self) -> None:
        made = setting({"name": "fedsimsup", "arrangement": "serial"}, clients_per_round=2)
        assert made.task.others == ()
        end, done = advance(made, begin(made), evaluate=True)
        body, head = made.task.model.body.stop, made.task.model.size - made.task.model.body.stop
        assert end.shelf["uploads/0"].shape == (2, body)
        assert all(own.s.shape == (head,) for own in end.own.values())
        assert done.evaluation("path").at.shape == (6, 1, 2)
        assert done.evaluation("path").figures.loss[:, 0].tolist() == (
            done.evaluation("personal").figures.loss.tolist()
        )

    def test_alone_there_is_no_supervisor(self) -> None:
        made = setting({"name": "fedsimsup", "arrangement": "alone"})
        end = played(made, 1)
        assert all(own.s.shape == (0,) for own in end.own.values())


class TestDeployment:
    def test_the_path_is_shared_own_and_sum(self) -> None:
        made = setting("fedsimsup", clients_per_round=2, rounds=3)
        end, done = advance(made, played(made, 1), evaluate=True)
        path, personal = done.evaluation("path"), done.evaluation("personal")
        for i in range(6):
            expected = [[1, 0], [0, 1], [1, 1]] if i in end.own else [[1, 0]] * 3
            assert path.at[i].tolist() == expected
        for along, alone in zip(path.figures, personal.figures, strict=True):
            assert (along[:, 2] == alone).all()
        assert 0 < len(end.own) < 6

    def test_a_client_that_never_took_part_predicts_with_the_shared_network_alone(self) -> None:
        """Unless one asks for the literal sum, with a supervisor that is noise."""
        silent = setting("fedsimsup", clients_per_round=1, rounds=2)
        heard = setting({"name": "fedsimsup", "untrained": "heard"}, clients_per_round=1, rounds=2)
        scores = []
        for made in (silent, heard):
            end, done = advance(made, begin(made), evaluate=True)
            (took_part,) = end.own
            scores.append(done.evaluation("personal").figures.loss)
        others = [i for i in range(6) if i != took_part]
        assert scores[0][took_part] == scores[1][took_part]
        assert (scores[0][others] != scores[1][others]).all()
        theta = models(silent, end)
        for i in others:
            x, y = silent.federation.split(i, "test")
            loss = nn.functional.cross_entropy(silent.task.model.logits(theta[i], x), y)
            assert scores[0][i] == pytest.approx(loss.item(), rel=1e-5)

    def test_nothing_is_chosen_along_the_path(self, tmp_path: Path) -> None:
        """Whatever the selection rule: no visit for a common point, no dagger, no word of it."""
        given = {"data": {"name": "synthetic", "samples": 160}, "clients": 5, "rounds": 2}
        wanted = Experiment(
            method="fedsimsup", selection="oracle-common", epochs=1, clients_per_round=2, **given
        )
        run = federate(wanted, out=tmp_path / "run")
        assert not run.evaluation.chosen
        assert "path point" not in repr(run)
        from isthmus.batch.headline import Headline
        from isthmus.report import read

        shown = Headline.of(wanted, run.rounds[-1])
        assert shown is not None
        assert not shown.on_test
        assert read(tmp_path / "run").selection is None

    def test_an_exported_pair_predicts_what_was_recorded(self, tmp_path: Path) -> None:
        given: dict[str, Any] = {
            "method": {"name": "fedsimsup", "supervisors": ["mlp hidden=5", "own"]},
            "data": {"name": "synthetic", "samples": 160},
            "clients": 5,
            "clients_per_round": 2,
            "rounds": 3,
            "epochs": 2,
            "lr": 0.1,
        }
        run = federate(Experiment(**given), others=[self.own], out=tmp_path / "run")
        recorded = run.evaluation("personal").figures.top1
        with isthmus.open(tmp_path / "run", others=[self.own]) as opened:
            cards = list(export(opened, tmp_path / "models"))
            kinds = [opened.setting.kind(i) for i in range(5)]
            parts = [opened.setting.federation.split(i, "test") for i in range(5)]
            first = opened.setting.task.model.load(opened.setting.task.w0)
        assert set(kinds) == {0, 1}
        for path, kind, part, top1 in zip(cards, kinds, parts, recorded, strict=True):
            if kind == 1:
                with raises(IsthmusError):
                    card.load_network(path)
            build = (lambda: Ensemble(first, self.own())) if kind == 1 else None
            right = card.load_network(path, build)(part.x).argmax(1) == part.y
            assert float(right.double().mean()) == top1

    @staticmethod
    def own() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 3), nn.ReLU(), nn.Linear(3, 10))


class TestCensus:
    def test_every_client_is_asked_once(self) -> None:
        made = setting("fedsimsup", clients_per_round=2)
        asked: list[int] = []

        class Listening(Loop):
            def run(self, setting: RunContext, call: Call, requests: Iterator[Request]) -> Any:
                for i, result in Loop.run(self, setting, call, requests):
                    asked.extend([i] if call.function == made.method.census else [])
                    yield i, result

        end = played(made._replace(engine=Listening()), 4)
        assert sorted(asked) == list(range(6))
        for i in range(6):
            y = made.federation.split(i, "train").y
            assert end.shelf["counts"][i].tolist() == torch.bincount(y, minlength=3).tolist()

    def test_who_did_not_answer_is_asked_again_and_till_then_similar_to_nobody(self) -> None:
        made = setting("fedsimsup", clients_per_round=3, rounds=8)
        lossy = made._replace(engine=Flaky(lambda t, i: t == 0 and i == 2))
        end = begin(made)
        while int(end.server.last[2]) < 0:
            before = end
            end, _ = advance(lossy, end, evaluate=False)
        assert int(before.server.since[2]) == NEVER
        assert torch.equal(models(made, before)[2], made.task.w0)
        assert int(end.server.since[2]) == end.t - 1 > 0
        assert end.shelf["counts"][2].sum() > 0

    def test_what_is_disclosed_has_a_name(self) -> None:
        assert FedSimSup().about().discloses == "label counts"
        assert FedSimSup(similarity="sizes").about().discloses == ""
        sizes = setting({"name": "fedsimsup", "similarity": "sizes"})
        assert played(sizes, 1).shelf["counts"].shape == (6, 1)
        none = setting({"name": "fedsimsup", "similarity": "none"})
        assert "counts" not in played(none, 1).shelf


class TestFullParticipation:
    def test_no_model_influences_another_and_a_note_says_so(self) -> None:
        """Client 3 gets other labels: nothing changes for anybody else, to the bit."""
        data = federation()
        y = data.arrays.y.copy()
        mine = np.concatenate(data.splits[3])
        y[mine] = (y[mine] + 1) % CLASSES
        other = Federation(data.arrays._replace(y=y), data.splits)
        ends = []
        for given in (data, other):
            made = setting("fedsimsup", data=given, clients_per_round=6)
            end, step = advance(made, begin(made), evaluate=False)
            check(step.notes[0])
            end, step = advance(made, end, evaluate=False)
            assert step.notes == ()
            ends.append(end)
        for i, (one, two) in enumerate(zip(*(models(made, end) for end in ends), strict=True)):
            assert torch.equal(one, two) == (i != 3)

    def test_without_it_they_do(self) -> None:
        made = setting("fedsimsup", clients_per_round=2)
        end, step = advance(made, begin(made), evaluate=False)
        assert step.notes == ()
        absent = [i for i in range(6) if i not in end.own]
        assert not any(torch.equal(models(made, end)[i], made.task.w0) for i in absent)


class TestKinds:
    @pytest.mark.parametrize("engine", [None, Stacked(block=4)], ids=["loop", "stacked"])
    def test_supervisors_of_several_architectures_work_side_by_side(self, engine: Any) -> None:
        """The server gets models of one size from all of them."""
        made = setting(SEVERAL, engine, rounds=6)
        sizes = [other.size for other in made.task.others]
        assert len(set(sizes)) == 3
        end, done = advance(made, played(made, 5), evaluate=True)
        assert {made.method.networks().kind(i) for i in end.own} == {0, 1, 2}
        for i, own in end.own.items():
            assert own.s.shape == (sizes[made.method.networks().kind(i)],)
        assert end.shelf["uploads/5"].shape == (4, made.task.model.size)
        assert np.isfinite(done.evaluation("personal").figures.loss).all()

    def test_each_client_draws_one_uniformly(self) -> None:
        """3000 draws of three: each 1000 times, give or take 3 deviations of 26."""
        method = FedSimSup(supervisors=("a", "b", "c"))
        kinds = [method.networks().kind(i) for i in range(3000)]
        assert kinds == [method.networks().kind(i) for i in range(3000)]
        assert np.abs(np.bincount(kinds) - 1000).max() < 78
        other = FedSimSup(supervisors=("a", "b", "c"), supervisor_seed=1)
        assert kinds != [other.networks().kind(i) for i in range(3000)]

    def test_results_are_split_by_kind(self, tmp_path: Path) -> None:
        given = {"data": {"name": "synthetic", "samples": 300}, "clients": 12, "rounds": 2}
        run = federate(
            Experiment(method=SEVERAL, epochs=1, clients_per_round=4, **given), out=tmp_path / "run"
        )
        from isthmus.report import page, read
        from isthmus.report.tables import summary

        records = read(tmp_path / "run")
        names = run.setting.method.networks().names
        assert records.federation.kind.tolist() == [names[run.setting.kind(i)] for i in range(12)]
        (row,) = summary.summarize([records])
        assert row.top1 == pytest.approx(sum(n * mean for _, n, mean in row.kinds) / 12)
        assert sum(n for _, n, _ in row.kinds) == 12
        check(summary.describe([row]))
        assert "Shared and own networks" in page.render([records])

    def test_second_networks_are_checked_before_anything_runs(self) -> None:
        for names in (["nothing"], ["mlp hidden=x"], ["mlp hidden=0"], ["twocnn"], ["own"], []):
            with raises(IsthmusError):
                setting({"name": "fedsimsup", "supervisors": names})

    def test_a_list_of_networks_survives_its_file(self, tmp_path: Path) -> None:
        written = Experiment(method=SEVERAL)
        (tmp_path / "experiment.toml").write_text(written.toml())
        assert Experiment.load(tmp_path / "experiment.toml") == written
        one = Experiment(method={"name": "fedsimsup", "supervisors": "mlp"})
        assert one.method["supervisors"] == ("mlp",)


class TestNewcomers:
    def given(self, p: list[list[int]], similarity: Any = "labels") -> Tensor:
        """Models 1, 2 and 4 of clients with label counts (2, 0, 0), (0, 3, 0) and (1, 1, 0)."""
        shelf = {
            "ids/0": torch.tensor([0, 1, 2]),
            "uploads/0": torch.tensor([[1.0], [2.0], [4.0]]),
            "counts": torch.tensor([[2, 0, 0], [0, 3, 0], [1, 1, 0]]),
        }
        rule = Absentees(torch.zeros(1), similarity, 40.0, 3 / 7)
        server = Server(torch.zeros(3, dtype=torch.long), torch.zeros(3))
        clients = stub(1, 10, shelf)
        clients.map = lambda census: (torch.arange(len(p)), torch.tensor(p))
        return rule.for_newcomers(server, clients, None)  # type: ignore[arg-type]

    def test_they_get_the_average_by_similarity(self) -> None:
        """(4, 0, 0) is similar to the first by 1 and to the third by 1 / sqrt(2)."""
        half = 1 / sqrt(2)
        found = self.given([[4, 0, 0], [0, 0, 9]])
        assert found[0].item() == pytest.approx((1 + half * 4) / (1 + half), abs=1e-6)
        assert found[1].item() == pytest.approx(7 / 3, abs=1e-6)  # like nobody: the plain average
        sizes = self.given([[4], [9]], similarity="sizes")
        assert sizes[:, 0].tolist() == pytest.approx([(2 * 1 + 3 * 2 + 2 * 4) / 7] * 2, abs=1e-6)

    @pytest.mark.parametrize("method", ["fedsimsup", SEVERAL], ids=["one", "several"])
    def test_they_train_a_supervisor_of_their_kind(self, method: Any) -> None:
        made = setting(method, rounds=3)
        end = played(made, 3)
        data = federation(sizes=(30, 30, 30, 30), seed=9)
        few, whole = join(made, end, data, (4, None))
        assert few.shots == 4
        for found in (few, whole):
            (score,) = (score for score in found.scores if score.split == "test")
            assert score.model == "newcomer"
            assert np.isfinite(score.figures.loss).all()


def test_a_longer_run_is_refused_once_beta_has_turned(tmp_path: Path) -> None:
    """c_beta T^gamma = 2 * 4^0.25 = 2.83 of 4 rounds: from the third on they depend on T."""
    given: dict[str, Any] = {
        "method": {"name": "fedsimsup", "c_beta": 2.0, "gamma": 0.25},
        "data": {"name": "synthetic", "samples": 100},
        "clients": 4,
        "clients_per_round": 2,
        "rounds": 4,
        "epochs": 1,
    }

    def stopped(name: str, after: int) -> Path:
        stop: Callable[[Any], bool] = lambda done: done.cost.round == after  # noqa: E731
        federate(Experiment(**given), out=tmp_path / name, watch=stop)
        return tmp_path / name

    assert isthmus.resume(stopped("early", 2), rounds=6).progress.t == 6
    with raises(IsthmusError):
        isthmus.resume(stopped("late", 3), rounds=6)
