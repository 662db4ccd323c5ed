"""What is to be learned, as a method sees it before any client is asked."""

from dataclasses import dataclass

from torch import Tensor

from isthmus import streams
from isthmus.models.flat import Flat
from isthmus.ranges import Balance, Calibration
from isthmus.selection import RULES, Rule, Selection


@dataclass(frozen=True)
class Task:
    """The network, its start, and the settings of local training that all clients share."""

    model: Flat
    w0: Tensor  # [P]: the common start
    classes: int  # C
    features: int  # D: how many enter the head; 0 if it is not called as a module
    clients: int  # N
    rounds: int  # R
    epochs: int  # E: passes over a client's data at each participation
    batch_size: int  # B
    lr: float
    lr_decay: float  # per round
    momentum: float
    weight_decay: float
    seed: int
    clients_per_round: int  # K
    selection: Selection = "validation"
    calibration: Calibration = "split"
    balance: Balance = "none"
    others: tuple[Flat, ...] = ()  # the second network of each kind of client

    @property
    def rule(self) -> Rule:
        """The rule by which a point of a path is chosen."""
        return RULES[self.selection]

    @property
    def calibrated(self) -> int | None:
        """The size of the mini-batches that are calibrated one by one; None: none are."""
        return self.batch_size if self.calibration == "per-batch" else None

    def seed_of(self, *place: int | str) -> int:
        """Derive a seed for something the method draws by itself, for example a client's start."""
        return streams.seed_of(self.seed, ":".join(["method", *(str(part) for part in place)]))

    def lr_at(self, t: int) -> float:
        """Return round t's learning rate: lr * lr_decay^(t + 1), constant within a round."""
        return self.lr * self.lr_decay ** (t + 1)
