"""Personal models, written out with cards that say what they are."""

import hashlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.engines.base import one_thread
from isthmus.errors import IsthmusError
from isthmus.evaluation import is_chosen, splits_of
from isthmus.experiment.registry import read_network
from isthmus.models.card import pack, save
from isthmus.models.portable import (
    FORMATS,
    TOLERANCE,
    Deployed,
    check_program,
    list_inputs,
    require_onnx,
    write_program,
)
from isthmus.run.open import Opened, Personal
from isthmus.system.files import remove_drafts

FEW, MOST = 4, 1000  # examples that a program is made with, and is checked on


def export(
    opened: Opened,
    folder: Path,
    ids: Sequence[int] | None = None,
    which: str = "last",
    form: str = "safetensors",
) -> Iterator[Path]:
    """Write clients' personal models, each with a card; yield the cards' paths.

    A model in another format than safetensors has what is done to inputs in front of it, and is
    compared with the personal model on the client's own data before it is written.
    """
    if form not in FORMATS:
        raise IsthmusError(
            f"unknown format {form}; choose one of {', '.join(FORMATS)}, for example --format onnx"
        )
    if form == "onnx":
        require_onnx()
    remove_drafts(folder)
    for personal in opened.clients(ids, which):
        name = f"client-{personal.i}"
        card = describe(opened, personal, which) | {"format": form, "file": name + FORMATS[form]}
        if form == "safetensors":
            yield save(pack(personal.module()), card, folder, name)
            continue
        module = Deployed(personal.module(), card)
        raw, ready = read_own(opened, personal.i, module)
        with one_thread():
            packed = write_program(module, form, raw[:FEW])
            apart = check_program(packed, form, raw, torch.softmax(personal(ready), 1))
        checked = {"examples": len(raw), "largest_difference": apart, "tolerance": TOLERANCE}
        yield save(packed, card | {"checked": checked}, folder, name)


def describe(opened: Opened, personal: Personal, which: str) -> dict[str, Any]:
    """Make the card of a personal model."""
    experiment, setting = opened.experiment, opened.setting
    federation, names = setting.federation, setting.method.networks().names
    arrays = federation.arrays
    card = {
        "client": personal.i,
        "name": federation.name(personal.i),
        "method": dict(experiment.method),
        "at": [round(number, 6) for number in personal.at],
        "selection": experiment.selection if is_chosen(setting) else None,
        "chosen_on_test_data": is_chosen(setting) and experiment.rule.on_test,
        "top1": {split: personal.top1(split) for split in splits_of(setting)},
        "train_examples": federation.sizes(personal.i)[0],
        "model": dict(experiment.model),
        "beside": read_network(names[setting.kind(personal.i)], federation.shape)
        if names
        else None,
        "shape": list(federation.shape),
        "classes": federation.classes,
        **{name: getattr(arrays, name) for name in ("scale", "mean", "std", "tokens")},
        "integers": bool(np.issubdtype(arrays.x.dtype, np.integer)),
        "labels": list(arrays.labels),
        "columns": [column._asdict() for column in federation.columns(personal.i)],
        "rounds": personal.round,
        "which": which,
        "experiment": hashlib.sha256(experiment.toml().encode()).hexdigest()[:16],
        "federation": federation.digest(),
        "isthmus": version("isthmus"),
    }
    kind = "int64" if arrays.tokens else "float64" if card["columns"] else "float32"
    takes = {"name": "x", "type": kind, "shape": ["batch", *federation.shape]}
    return card | {"input": takes, "inputs": list_inputs(card)}


def read_own(opened: Opened, i: int, module: Deployed) -> tuple[Tensor, Tensor]:
    """Return some of a client's examples, raw and prepared as for training."""
    federation = opened.setting.federation
    arrays, parts = federation.arrays, federation.splits[i]
    rows = np.concatenate([parts.test, parts.validation, parts.train])[:MOST]
    rows = np.resize(rows, max(len(rows), FEW))
    x = np.asarray(arrays.x[rows])
    if arrays.columns and not arrays.scaled_by:  # they were scaled when they were read
        x = x.astype(np.float64) * module.std.numpy() + module.mean.numpy()
    kind = torch.int64 if arrays.tokens else module.mean.dtype
    return torch.as_tensor(np.array(x)).to(kind), federation.take(i, rows).x
