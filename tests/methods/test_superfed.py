from math import exp, floor

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from by_hand import client, task, vector
from isthmus import Experiment, Federation, tree
from isthmus.cohort import Round
from isthmus.evaluation import Evaluation, evaluate
from isthmus.methods.superfed import Own, Server, SuPerFed
from isthmus.models.flat import Flat
from isthmus.run.loop import federate
from small import advance, begin, federation, network, played, setting

YES, NO = torch.tensor(True), torch.tensor(False)


def evaluated(selection: str, method: str = "superfed-mm") -> Evaluation:
    made = setting(method, selection=selection, rounds=6)
    _, done = advance(made, played(made, 5), evaluate=True)
    assert done.evaluation is not None
    return done.evaluation


def test_two_clients_worked_by_hand() -> None:
    """One step with lam = 1/2, mu = 3 and lr = 0.1 from wg = (1, 0).

    Client A: wl = (0, 1). The mixture is (1/2, 1/2), p = (1/2, 1/2), the network's gradient
    (-1/2, 1/2); each end gets half: (-1/4, 1/4). wf is at wg, so no proximity; the ends are
    orthogonal, so no cosine. wf = (1.025, -0.025), wl = (0.025, 0.975).

    Client B, nu = 1/2: wl = (1, 1). The mixture is (1, 1/2), p0 = 1 / (1 + exp(-1/2)) = s, its
    gradient (s - 1, 1 - s). cos = 1/sqrt(2), so d cos^2/df = 2 cos (l/(|f||l|) - cos f/|f|^2) =
    (1, 1) - (1, 0) = (0, 1) and d cos^2/dl = (1, 0) - (1/2, 1/2) = (1/2, -1/2). Hence
    wf = (1, 0) - 0.1 ((s - 1)/2, (1 - s)/2 + 1/2), wl = (1, 1) - 0.1 ((s - 1)/2 + 1/4,
    (1 - s)/2 - 1/4).
    """
    method = SuPerFed(mu=3.0, nu=0.5, start=0.0)
    server, half = Server(vector(1, 0)), [[0.5]]
    own, reply = method.local(client(method, task(), 0, u=half), Own(vector(0, 1), NO, NO), server)
    assert reply.wf.tolist() == pytest.approx([1.025, -0.025], abs=1e-12)
    assert own.wl.tolist() == pytest.approx([0.025, 0.975], abs=1e-12)
    assert bool(own.mixed)

    own, reply = method.local(client(method, task(), 0, u=half), Own(vector(1, 1), NO, NO), server)
    s = 1 / (1 + exp(-0.5))
    assert reply.wf.tolist() == pytest.approx(
        [1 - 0.1 * (s - 1) / 2, -0.1 * ((1 - s) / 2 + 0.5)], abs=1e-12
    )
    assert own.wl.tolist() == pytest.approx(
        [1 - 0.1 * ((s - 1) / 2 + 0.25), 1 - 0.1 * ((1 - s) / 2 - 0.25)], abs=1e-12
    )


class TestGradient:
    """One step of plain SGD shows the gradient: g = (before - after) / lr."""

    @pytest.fixture(autouse=True)
    def float64(self):
        torch.set_default_dtype(torch.float64)
        yield
        torch.set_default_dtype(torch.float32)

    def objective(
        self, method: SuPerFed, f: Tensor, own: Tensor, g: Tensor, lam: Tensor, x: Tensor, y: Tensor
    ) -> Tensor:
        """J as the paper writes it, apart from the program's own functions."""
        module = network()
        start = 0
        mixed = (1 - lam) * f + lam * own
        for parameter in module.parameters():
            size = parameter.numel()
            parameter.data = mixed[start : start + size].view(parameter.shape)
            start += size
        loss = nn.functional.cross_entropy(module(x), y)
        cosine = (f @ own) / (f.norm() * own.norm())
        return loss + method.mu * ((f - g) ** 2).sum() + method.nu * cosine**2

    @pytest.mark.parametrize("mix", ["model", "layer"])
    def test_it_agrees_with_finite_differences(self, mix: str) -> None:
        """Two steps of `local`: the first from wf = wg, the second away from it.

        Central differences of step 1e-5 in float64 err by 1e-10 (truncation and rounding); the
        gradient is read off as (before - after) / lr, which costs three digits at lr = 1e-3.
        """
        method = SuPerFed(mix=mix, mu=3.0, nu=2.0, start=0.0)  # type: ignore[arg-type]
        model = Flat(network)
        wg, wl = model.fresh(1), model.fresh(2)
        random = torch.Generator().manual_seed(0)
        x, y = torch.randn(1, 6, generator=random), torch.tensor([2])
        u = torch.rand(2, method.noise(task(model=model)), generator=random)
        ends = [torch.cat([wg, wl])]
        for steps in (1, 2):
            settings = task(model=model, lr=1e-3, epochs=steps)
            here = client(method, settings, 0, x=x.tolist(), y=y.tolist(), u=u[:steps].tolist())
            own, reply = method.local(here, Own(wl, NO, NO), Server(wg))
            ends.append(torch.cat([reply.wf, own.wl]))
        for step in (0, 1):
            found = (ends[step] - ends[step + 1]) / 1e-3
            lam = u[step][model.layer] if mix == "layer" else u[step]
            expected = torch.zeros_like(found)
            for k in range(len(found)):
                for sign in (1, -1):
                    moved = ends[step].clone()
                    moved[k] += sign * 1e-5
                    value = self.objective(method, *moved.split(model.size), wg, lam, x, y)
                    expected[k] += sign * value.item() / 2e-5
            assert (found - expected).abs().max() < 1e-7

    def test_each_module_shares_its_gradient_by_its_own_lambda(self) -> None:
        """Without penalties the two ends' gradients are as (1 - lam) to lam, module by module."""
        method = SuPerFed(mix="layer", mu=0.0, nu=0.0, start=0.0)
        model = Flat(network)
        g, l0, lam = model.fresh(1), model.fresh(2), torch.tensor([0.25, 0.8])
        here = client(
            method, task(model=model), 0, x=[[1.0, -1.0, 2.0, 0.5, 0.0, 1.0]], u=[lam.tolist()]
        )
        own, reply = method.local(here, Own(l0, NO, NO), Server(g))
        shares = lam[model.layer]
        assert torch.allclose((g - reply.wf) * shares, (l0 - own.wl) * (1 - shares), atol=1e-14)
        assert (g - reply.wf).abs().max() > 1e-3

    def test_orthogonality_alone_lowers_the_cosine_step_by_step(self) -> None:
        """Inputs of 0 without biases give the network no gradient: only nu cos^2 is left."""
        method = SuPerFed(mu=0.0, nu=5.0, start=0.0)
        steps = task(lr=0.01, epochs=1)
        wf, wl = vector(1, 0.2), vector(1, 0.9)
        cosines = []
        for _ in range(20):
            here = client(method, steps, 0, x=[[0.0]], u=[[0.3]])
            own, reply = method.local(here, Own(wl, YES, YES), Server(wf))
            wf, wl = reply.wf, own.wl
            cosines.append(float((wf @ wl) ** 2 / (wf @ wf * (wl @ wl))))
        assert cosines == sorted(cosines, reverse=True)
        assert cosines[-1] < 0.5 * cosines[0]


def test_phase_two_begins_at_the_round_of_the_floor() -> None:
    """start = 0.35 of R = 10: rounds 0, 1, 2 only train wf; round 3 mixes."""
    method = SuPerFed(start=0.35)
    for t in range(5):
        here = client(method, task(rounds=10), t, u=[[0.5]])
        own, _ = method.local(here, Own(vector(0, 1), NO, NO), Server(vector(1, 0)))
        assert bool(own.mixed) == (t >= floor(0.35 * 10))


def test_a_share_that_binary_numbers_fall_short_of_is_not_cut_by_a_round() -> None:
    """0.29 * 100 is 28.999999999999996 in binary numbers, whose floor is 28; 29 is meant."""
    assert SuPerFed(start=0.29).schedule(100) == (29,)
    assert SuPerFed(start=0.4).schedule(500) == (200,)
    assert SuPerFed(start=0.35).schedule(10) == (3,)


def test_phase_one_leaves_the_own_model_alone_to_the_bit() -> None:
    """No gradient, and no weight decay either, reaches it."""
    made = setting({"name": "superfed-mm", "start": 1.0}, weight_decay=0.5)
    end = played(made, 4)
    assert end.own
    for i, own in end.own.items():
        assert torch.equal(own.wl, made.method.own(made.task, i).wl)
        assert (bool(own.seen), bool(own.mixed)) == (True, False)


def test_weight_decay_and_momentum_act_on_both_ends_in_phase_two() -> None:
    """Without any gradient (inputs 0, mu = nu = 0), two steps of lr 0.1, wd 0.5, momentum 0.9.

    v1 = 0.5 w; w1 = 0.95 w; v2 = 0.9 * 0.5 w + 0.5 * 0.95 w = 0.925 w; w2 = 0.8575 w.
    """
    method = SuPerFed(mu=0.0, nu=0.0, start=0.0)
    settings = task(weight_decay=0.5, momentum=0.9, epochs=2)
    here = client(method, settings, 0, x=[[0.0]], u=[[0.5], [0.5]])
    own, reply = method.local(here, Own(vector(2, 4), NO, NO), Server(vector(6, 8)))
    assert own.wl.tolist() == pytest.approx([1.715, 3.43], abs=1e-12)
    assert reply.wf.tolist() == pytest.approx([5.145, 6.86], abs=1e-12)


class TestOwnStart:
    def test_by_default_every_client_draws_its_own(self) -> None:
        made = setting("superfed-mm")
        first, second = (made.method.own(made.task, i).wl for i in (0, 1))
        assert not torch.equal(first, second)
        assert not torch.equal(first, made.task.w0)
        assert torch.equal(first, made.method.own(made.task, 0).wl)

    def test_fresh_shared_draws_one_for_all(self) -> None:
        made = setting({"name": "superfed-mm", "local_init": "fresh_shared"})
        first, second = (made.method.own(made.task, i).wl for i in (0, 1))
        assert torch.equal(first, second)
        assert not torch.equal(first, made.task.w0)

    def test_copy_takes_the_shared_model_of_the_first_participation(self) -> None:
        method = SuPerFed(local_init="copy", start=0.5)
        settings = task(rounds=10)
        own = method.own(settings, 0)
        own, _ = method.local(client(method, settings, 0, u=[[0.5]]), own, Server(vector(3, 4)))
        assert own.wl.tolist() == [3, 4]
        own, _ = method.local(client(method, settings, 1, u=[[0.5]]), own, Server(vector(5, 6)))
        assert own.wl.tolist() == [3, 4]


def test_the_sum_of_norms_pulls_with_constant_length() -> None:
    """The release's proximity: a gradient of length mu per tensor, however near, and 0 at wg.

    Inputs are 0, nu = 0, phase I. First step: wf = wg stays. From wg + (3, 4)e-3 it moves by
    lr * mu * (0.6, 0.8).
    """
    method = SuPerFed(proximity="sum_of_norms", mu=0.01, start=1.0)
    wg = vector(1, 2)
    here = client(method, task(), 0, x=[[0.0]], u=[[0.5]])
    _, reply = method.local(here, Own(wg, NO, NO), Server(wg))
    assert torch.equal(reply.wf, wg)
    here = client(method, task(), 0, x=[[0.0]], u=[[0.5]])
    from isthmus.formulas.vector import sum_of_norms

    moved = here.descend(
        wg + vector(3e-3, 4e-3),
        penalty=lambda w: 0.01 * sum_of_norms(here.model.tensors(w - wg)),
    )
    assert (moved - wg).tolist() == pytest.approx([3e-3 - 6e-4, 4e-3 - 8e-4], abs=1e-12)


def test_lambda_zero_predicts_as_the_shared_model_does() -> None:
    """After the final delivery, for every client, every figure, to the bit."""
    for method in ("superfed-mm", "superfed-lm"):
        evaluation = evaluated("validation", method)
        path, shared = evaluation("path"), evaluation("shared")
        for along, alone in zip(path.figures, shared.figures, strict=True):
            assert (along[:, 0] == alone).all()


def test_a_client_that_never_mixed_deploys_the_shared_model() -> None:
    made = setting("superfed-mm", clients_per_round=1, rounds=5)
    end, done = advance(made, played(made, 4), evaluate=True)
    never = [i for i in range(6) if i not in end.own or not end.own[i].mixed]
    assert never
    personal, shared = done.evaluation("personal"), done.evaluation("shared")
    for i in never:
        assert personal.at[i] == 0
        assert personal.figures.loss[i] == shared.figures.loss[i]
        assert (done.evaluation("path").at[i] == 0).all()


class TestSelection:
    def test_validation_takes_the_least_validation_loss_of_each_client(self) -> None:
        evaluation = evaluated("validation")
        best = evaluation("path", "validation").figures.loss.argmin(1)
        test = evaluation("path", "test")
        rows = np.arange(len(best))
        assert (evaluation("personal").at[:, 0] == test.at[rows, best, 0]).all()
        assert (evaluation("personal").figures.top1 == test.figures.top1[rows, best]).all()

    def test_common_takes_one_point_for_all_by_validation_loss(self) -> None:
        evaluation = evaluated("common")
        best = evaluation("path", "validation").figures.loss.mean(0).argmin()
        assert (evaluation("personal").at == evaluation("path").at[:, best]).all()

    def test_fixed_takes_the_midpoint(self) -> None:
        evaluation = evaluated("fixed")
        assert (evaluation("personal").at == evaluation("path").at[:, 5]).all()
        assert evaluation("personal").at.max() == pytest.approx(0.5)

    def test_an_oracle_beats_one_for_all_beats_any_fixed_point(self) -> None:
        """On the same models: each client's best, the best mean, the mean at each lambda."""
        each, one = evaluated("oracle"), evaluated("oracle-common")
        means = each("path").figures.top1.mean(0)
        assert each("personal").figures.top1.mean() >= one("personal").figures.top1.mean()
        assert one("personal").figures.top1.mean() == means.max()

    def test_only_an_oracle_looks_at_test_labels(self) -> None:
        """Other test labels change what an oracle chooses and nothing that validation chooses."""
        noisy = federation(sizes=(60,) * 6, spread=3.0)  # so that points of a path differ
        end = played(setting("superfed-mm", data=noisy, rounds=6), 6)

        def chosen(selection: str, shift: int) -> list[float]:
            made = setting("superfed-mm", data=noisy, selection=selection, rounds=6)
            arrays = made.federation.arrays
            y = arrays.y.copy()
            for parts in made.federation.splits:
                y[parts.test] = (y[parts.test] + shift) % 3
            other = Federation(arrays._replace(y=y), made.federation.splits)
            round = Round(made._replace(federation=other), 5, end.own)
            at: list[float] = evaluate(round, end.server)("personal").at.tolist()
            return at

        assert chosen("validation", 0) == chosen("validation", 1)
        assert chosen("common", 0) == chosen("common", 1)
        assert chosen("oracle", 0) != chosen("oracle", 1)


def test_layer_mixing_draws_one_lambda_per_weight_owning_module() -> None:
    """Embedding, LSTM stack, linear layer: three; weights and biases of a module share one."""

    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)
            self.linear = nn.Linear(5, 10)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.linear(self.lstm(self.embedding(x.long()))[0][:, -1])
            return out

    model = Flat(Speech)
    assert SuPerFed(mix="layer").noise(task(model=model)) == 3
    assert SuPerFed(mix="model").noise(task(model=model)) == 1
    assert model.layer.unique(return_counts=True)[1].tolist() == [
        40,
        sum(p.numel() for p in Speech().lstm.parameters()),
        60,
    ]


def test_lambda_is_drawn_anew_for_every_batch() -> None:
    made = setting("superfed-lm", epochs=3)
    from isthmus.context import Call
    from isthmus.engines.base import draw

    u = draw(made, Call(len, (), 0, "train", 0), 1, 27).u
    assert u.shape == (3 * 4, 2)
    assert len(np.unique(u)) == u.size
    assert ((u >= 0) & (u < 1)).all()


def test_a_resumed_run_takes_up_mixing_where_it_was() -> None:
    made = setting("superfed-mm", rounds=6)
    whole = played(made, 6)
    parts = played(made, 3, played(made, 3, begin(made)))
    assert tree.digest([whole.server]) == tree.digest([parts.server])


def test_presets_reach_the_method() -> None:
    release = Experiment(
        method="superfed-lm", preset="release", data="synthetic", rounds=2, epochs=1
    )
    run = federate(release.model_copy(), data_root=".")
    assert run.setting.method == SuPerFed(
        mix="layer", start=0.6, nu=2.0, proximity="sum_of_norms", dot_offset=1e-6
    )
    assert run.setting.task.selection == "oracle"
