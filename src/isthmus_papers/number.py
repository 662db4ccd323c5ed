"""Which number a paper prints: of which models, on whose data, chosen how, spread over what."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict

from isthmus.metrics.metric import METRICS
from isthmus.selection import RULES

LAMBDA = "lambda"  # not a metric: the place of the common point on the path
SPEED_UP = "speed-up"  # not a metric: rounds of the baseline over rounds of the method

FACTORS = {"percent": 100.0, "fraction": 1.0, "nats": 1.0, "lambda": 1.0, "times": 1.0}

if TYPE_CHECKING:
    MetricName = str
    Choice = str
    Unit = str
else:
    MetricName = Literal[*METRICS, LAMBDA, SPEED_UP]
    Choice = Literal["none", "unknown", *RULES]
    Unit = Literal[*FACTORS]

MODELS = {"personal": "the models that clients deploy", "shared": "the shared model"}
DATA = {
    "clients": "on the clients' own test parts",
    "validation": "on the clients' own validation parts",
    "server": "on the server's test set",
}
SUMMARIES = {
    "mean": "mean over clients",
    "pooled": "over all their examples together",
    "worst 5%": "mean over the worst 5 % of clients",
}
EVALUATIONS = {"last": "after the last round", "unknown": "after a round that is not stated"}
DEVIATIONS = {
    "clients": "± over clients",
    "seeds": "± over seeds",
    "none": "no deviation is given",
    "unknown": "± over what is not stated",
}


@dataclass(frozen=True)
class Number:
    """Exactly which number is printed; `unknown` where no source says.

    >>> Number("top1", selection="oracle-common").describe()
    "top1 in percent: the models that clients deploy, one point for all clients, chosen on their \
TEST parts; on the clients' own test parts, mean over clients; after the last round; ± over clients"
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    metric: MetricName  # one of METRICS, or LAMBDA, or SPEED_UP
    model: Literal["personal", "shared"] = "personal"
    data: Literal["clients", "validation", "server"] = "clients"  # the last: its own test set
    summary: Literal["mean", "pooled", "worst 5%"] = "mean"  # how clients become one number
    clients: str = "all"  # or those with one kind of supervisor
    selection: Choice = "none"  # how the point of a path was chosen
    evaluation: Literal["last", "unknown"] = "last"
    deviation: Literal["clients", "seeds", "none", "unknown"] = "clients"
    unit: Unit = "percent"

    @property
    def factor(self) -> float:
        """What a value of the records is multiplied by to be as it is printed."""
        return FACTORS[self.unit]

    def describe(self) -> str:
        """Describe which number it is, in one line."""
        whose = "" if self.clients == "all" else f" of the clients with {self.clients}"
        place = DATA[self.data]
        over = "" if self.data == "server" else f", {SUMMARIES[self.summary]}"
        how = {"none": "", "unknown": ", at a point chosen in a way that is not stated"}
        rule = RULES.get(self.selection)
        chosen = how[self.selection] if rule is None else f", {rule.sentence}"
        return (
            f"{self.metric} in {self.unit}: {MODELS[self.model]}{whose}{chosen}; "
            f"{place}{over}; {EVALUATIONS[self.evaluation]}; {DEVIATIONS[self.deviation]}"
        )
