"""Personal models, written out with cards that say what they are."""

import hashlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from isthmus.config.registry import read_network
from isthmus.evaluation import is_chosen, splits_of
from isthmus.models.card import save
from isthmus.runs.opened import Opened
from isthmus.system.files import remove_drafts


def export(
    opened: Opened, folder: Path, ids: Sequence[int] | None = None, which: str = "last"
) -> Iterator[Path]:
    """Writes clients' personal models, each with a card; yields the cards' paths."""
    experiment, setting = opened.experiment, opened.setting
    shape, names = setting.federation.shape, setting.method.networks().names
    remove_drafts(folder)
    for personal in opened.clients(ids, which):
        n, *_ = setting.federation.sizes(personal.i)
        splits = splits_of(setting)
        card = {
            "client": personal.i,
            "name": setting.federation.name(personal.i),
            "method": dict(experiment.method),
            "at": [round(number, 6) for number in personal.at],
            "selection": experiment.selection if is_chosen(setting) else None,
            "chosen_on_test_data": is_chosen(setting) and experiment.rule.on_test,
            "top1": {split: personal.top1(split) for split in splits},
            "train_examples": n,
            "model": dict(experiment.model),
            "beside": read_network(names[setting.kind(personal.i)], shape) if names else None,
            "shape": list(shape),
            "classes": setting.federation.classes,
            **{name: getattr(setting.federation.arrays, name) for name in ("scale", "mean", "std")},
            "labels": list(setting.federation.arrays.labels),
            "columns": [column._asdict() for column in setting.federation.columns(personal.i)],
            "rounds": personal.round,
            "which": which,
            "experiment": hashlib.sha256(experiment.toml().encode()).hexdigest()[:16],
            "federation": setting.federation.digest(),
            "isthmus": version("isthmus"),
        }
        yield save(personal.module(), card, folder, f"client-{personal.i}")
