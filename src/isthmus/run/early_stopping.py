"""Early stopping: when validation data say that more rounds would not help.

Only evaluations that `eval_every` calls for count, not the one after the last round: so a run that
is made longer stops where it would have stopped in one piece.
"""

from isthmus.evaluation import Evaluation
from isthmus.experiment.settings import Experiment
from isthmus.run.store import Best


def judge(experiment: Experiment, best: Best, round: int, evaluation: Evaluation | None) -> Best:
    """Gives the best after a round."""
    every = experiment.eval_every
    if evaluation is None or not every or round % every or not experiment.validation:
        return best
    loss = float(evaluation("personal", "validation").figures.loss.mean())
    if loss < best.loss:
        return Best(loss, round)
    return best._replace(since=best.since + 1)


def find_reason(experiment: Experiment, done: int, best: Best) -> str:
    """Says why a run ends after so many rounds, before its last; nothing where it does not."""
    if not experiment.patience or best.since < experiment.patience or done == experiment.rounds:
        return ""
    of = "" if experiment.eval_sample is None else " of the sampled clients"
    return (
        f"patience={experiment.patience}: mean validation loss of the personal models{of} no less "
        "than "
        f"{best.loss:.4g}, after round {best.round}, in the {best.since} evaluations since"
    )
