"""What evaluation asks of a client."""

from typing import Any

import numpy as np
import pytest

from isthmus.cohort import Round
from isthmus.engines.loop import Loop
from isthmus.engines.stacked import Stacked
from isthmus.evaluation import evaluate
from isthmus.method import Method
from small import played, setting


@pytest.mark.parametrize(("method", "passes"), [("fedavg", 6), ("ditto", 10)])
def test_a_client_that_deploys_the_shared_model_is_not_asked_twice(
    method: str, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six clients, of whom four have a model of their own after a round of Ditto."""
    asked = []

    def logits(self: Method, client: Any, params: Any, x: Any) -> Any:
        asked.append(1)
        return client.model.logits(params, x)

    made = setting(method, Loop())
    progress = played(made, 1)
    monkeypatch.setattr(type(made.method), "logits", logits)
    scores = evaluate(Round(made, 0, progress.own), progress.server)
    assert len(asked) == passes
    blocks = made._replace(engine=Stacked(block=4))
    again = evaluate(Round(blocks, 0, progress.own), progress.server)
    for model in ("personal", "shared"):
        one, other = scores(model).figures, again(model).figures
        np.testing.assert_allclose(one.loss, other.loss, rtol=1e-5)  # padding, float32
