"""The figures of an evaluation that fit into one line; readable without torch."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from isthmus.experiment.settings import Experiment
    from isthmus.run.loop import RoundResult


class Headline(NamedTuple):
    """The means over clients by which people follow a run."""

    personal: float  # top-1 on test parts
    shared: float | None
    validation: float | None  # loss of the personal models on validation parts
    on_test: bool = False  # the personal models were chosen on test data
    sampled: int = 0  # clients of whom they are the means, where these are a sample

    @classmethod
    def of(cls, experiment: "Experiment", done: "RoundResult") -> "Headline | None":
        """Return that of a round; None if the round was not evaluated."""
        if done.evaluation is None:
            return None
        scores = {(score.model, score.split): score.figures for score in done.evaluation.scores}
        shared, judged = scores.get(("shared", "test")), scores.get(("personal", "validation"))
        return cls(
            float(scores["personal", "test"].top1.mean()),
            None if shared is None else float(shared.top1.mean()),
            None if judged is None else float(judged.loss.mean()),
            on_test=done.evaluation.chosen and experiment.rule.on_test,
            sampled=0 if experiment.eval_sample is None else len(scores["personal", "test"].n),
        )
