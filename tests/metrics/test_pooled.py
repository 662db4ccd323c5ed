"""What is measured over a round's clients together: pooled scores, and how their heads differ."""

from typing import Any

import pytest
import torch

from isthmus import cohort
from isthmus.cohort import Clients, Round
from isthmus.engines.loop import Loop
from isthmus.engines.stacked import Stacked
from isthmus.formulas.vector import total_variance
from isthmus.metrics.score import figures, pool, tally
from small import SIZES, advance, begin, federation, played, setting

ENGINES = {"loop": Loop(), "stacked": Stacked(4)}
both_engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)

# The engines' probabilities differ by some 1e-7 in float32, and so do losses and gaps of size 1.
ENGINES_AGREE = 1e-6


def examples(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [federation().split(i, split) for i in range(len(SIZES))]
    return torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])


@both_engines
@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("block", [256, 4])
def test_pooled_is_one_model_on_all_clients_examples(
    engine: Any, split: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody deploys FedAvg's shared model, so all test parts together are one test set; six
    clients are one block, or two."""
    monkeypatch.setattr(cohort, "CLIENTS_AT_A_TIME", block)
    made = setting("fedavg", engine)
    end, step = advance(made, played(made, 2), evaluate=True)
    x, y = examples(split)
    expected = pool(tally(made.task.model.logits(end.server.w, x), y))
    found = step.evaluation("personal", split).pooled
    for one, other in zip(found.figures, expected.figures, strict=True):
        assert one == pytest.approx(other, abs=ENGINES_AGREE)
    assert found.bins.n.tolist() == expected.bins.n.tolist()
    assert found.bins.confidence == pytest.approx(expected.bins.confidence, abs=1e-5)  # sums


def test_pooled_weighs_clients_by_their_examples() -> None:
    made = setting("superfed-mm")
    _, step = advance(made, played(made, 2), evaluate=True)
    for score in step.evaluation.scores:
        if score.model == "path":
            assert score.pooled is None
            continue
        n, each = score.figures.n, score.figures
        assert score.pooled.figures.n == n.sum()
        for name in ("top1", "top5", "loss", "brier"):
            expected = (n * getattr(each, name)).sum() / n.sum()
            assert getattr(score.pooled.figures, name) == pytest.approx(expected, rel=1e-12)
        assert score.pooled.figures.ece <= (n * each.ece).sum() / n.sum() + 1e-12  # errors cancel


@both_engines
def test_per_batch_is_the_mean_over_a_clients_batches(engine: Any) -> None:
    """Test parts of 1, 8, 4, 6, 2 and 4 examples in batches of three: padded to eight by stacked,
    they are still 1, 3, 2, 2, 1 and 2 batches. The server's 46 examples are sixteen."""
    data = federation(spread=2.0)  # hard enough to be wrong
    made = setting("fedavg", engine, data, calibration="per-batch", batch_size=3)
    end, step = advance(made, begin(made), evaluate=True)
    found = step.evaluation("personal").figures

    def expected(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
        logits = made.task.model.logits(end.server.w, x).split(3)
        parts = [figures(tally(*part)) for part in zip(logits, y.split(3), strict=True)]
        return sum(p.ece for p in parts) / len(parts), sum(p.mce for p in parts) / len(parts)

    for i in range(len(SIZES)):
        ece, mce = expected(*made.federation.split(i, "test"))
        assert found.ece[i] == pytest.approx(ece, abs=ENGINES_AGREE)
        assert found.mce[i] == pytest.approx(mce, abs=ENGINES_AGREE)
    ece, mce = expected(*made.federation.server_test())
    assert step.evaluation.server.ece == pytest.approx(ece, abs=ENGINES_AGREE)
    assert step.evaluation.server.mce == pytest.approx(mce, abs=ENGINES_AGREE)


def test_per_batch_moves_ece_and_mce_and_nothing_else() -> None:
    ends, data = {}, federation(spread=2.0)
    for calibration in ("split", "per-batch"):
        made = setting("superfed-mm", data=data, calibration=calibration, batch_size=3)
        ends[calibration] = advance(made, played(made, 2), evaluate=True)
    (first, one), (second, other) = ends.values()
    assert torch.equal(first.server.w, second.server.w)
    for whole, batched in zip(one.evaluation.scores, other.evaluation.scores, strict=True):
        for name in ("n", "top1", "top5", "loss", "brier"):
            assert (getattr(whole.figures, name) == getattr(batched.figures, name)).all()
        if whole.split == "test":  # validation parts of one batch are the same
            assert (batched.figures.ece != whole.figures.ece).any()
            assert (batched.figures.mce != whole.figures.mce).any()
        assert repr(whole.pooled) == repr(batched.pooled)


@both_engines
@pytest.mark.parametrize("method", ["fedavg", "fedprox", "superfed-mm", "superfed-lm"])
def test_the_heads_variance_is_that_of_what_came_back(engine: Any, method: str) -> None:
    """8 * 3 + 3 = 27 coordinates of the last layer; updates have the variance of the models."""
    made = setting(method, engine)
    middle = played(made, 2)
    round = Round(made, 2, middle.own)
    _, reply = Clients([0, 2, 3], round).map(made.method.local, middle.server)
    updates = (reply[0] - middle.server.w)[:, -27:].double()
    expected = sum((update - updates.mean(0)).square().sum() for update in updates)
    # The sum of squares of float32 differences, each good to 1e-7 of weights of size 1.
    assert round.head_variance == pytest.approx(float(expected), rel=1e-4)
    assert round.head_variance > 0


def test_one_client_has_no_variance_and_local_sends_no_head() -> None:
    alone = setting("fedavg", clients_per_round=1)
    assert advance(alone, begin(alone), evaluate=False)[1].cost.head_variance == 0
    local = setting("local")
    assert advance(local, begin(local), evaluate=False)[1].cost.head_variance is None


def test_replies_of_another_kind_have_no_head() -> None:
    made = setting("fedavg")
    round = Round(made, 0, {})
    Clients([1, 2], round).map(lambda client, own: (own, (client.n,)))
    assert round.head_variance is None


def test_the_variance_of_three_rows() -> None:
    """Rows (0, 0), (3, 0), (0, 6) have the mean (1, 2): 1 + 4, 4 + 4 and 1 + 16 are 30 in all; the
    same about another start."""
    rows = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 6.0]])
    assert total_variance(rows) == 30
    assert total_variance(rows + torch.tensor([5.0, -1.0])) == 30
