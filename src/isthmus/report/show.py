"""How a run stands, from its files alone: settings, progress, figures, sizes."""

from pathlib import Path
from typing import Any

from isthmus.errors import IsthmusError
from isthmus.metrics import spread
from isthmus.records import reader
from isthmus.report.tables import summary as tables

POOLED = ("top1", "loss", "brier", "ece", "mce")


def read(path: Path, target: float | None = None) -> dict[str, Any]:
    """Collects what is known of a run and, where a target is given, what it took to reach it."""
    if target is not None and not 0 < target <= 1:
        raise IsthmusError(
            f"target {target:g}; expected a share of right answers, above 0 and at most 1; for "
            "example 0.9"
        )
    sizes = {file.name: file.stat().st_size for file in sorted(path.glob("*")) if file.is_file()}
    try:
        run = reader.read(path)
    except IsthmusError as error:
        if "experiment.toml" not in sizes:
            raise
        return {"run": str(path), "status": str(error), "bytes": sizes}
    tested = run.curve("top1")
    curve = dict(zip(tested.round.tolist(), tested.mean.tolist(), strict=True))
    top1 = run.over_clients("top1")
    validated = run.curve("loss", "personal", "validation")
    best = int(validated.round[validated.mean.argmin()]) if len(validated.round) else None
    return {
        "run": str(path),
        "status": run.status,
        "reason": run.summary.get("reason"),
        "rounds_done": int(run.rounds.round[-1]) if len(run.rounds.round) else 0,
        "rounds": run.settings.get("rounds"),
        "clients": len(run.federation.client),
        "last": {
            "round": run.last,
            "personal_top1_test": float(top1.mean()),
            "personal_top1_test_worst_5_percent": spread.worst(top1),
            "shared_top1_test": reader.mean_or_none(run.over_clients("top1", "shared")),
            "personal_pooled_over_test_examples": {metric: run.pooled(metric) for metric in POOLED},
        },
        **({} if target is None else {"to_target": _to_target(run, target)}),
        "best_by_validation_loss": None
        if best is None
        else {"round": best, "personal_top1_test": curve[best]},
        "chosen_on_test_data": run.chosen_on_test,
        "digest": run.summary.get("digest"),
        "federation": run.split_digest,
        "settings": dict(run.settings),
        "bytes": sizes,
    }


def _to_target(run: reader.Run, target: float) -> dict[str, Any]:
    spent = run.to_reach(target)
    return {"personal_top1_test": target} | (
        {"reached": False} if spent is None else {"reached": True, **spent._asdict()}
    )


def _reached(to: dict[str, Any], dagger: str) -> str:
    said = f"mean personal test top-1 over clients of {to['personal_top1_test']:.2%}"
    if not to["reached"]:
        return f"{said}: never reached at an evaluated round"
    return (
        f"{said}{dagger}: first reached after round {to['rounds']}, with {to['seconds']:,.1f} s of "
        f"training and {tables.nbytes(to['nbytes'])} down and up"
    )


def text(stands: dict[str, Any]) -> str:
    """Writes it for a person."""
    lines = [f"{stands['run']}: {stands['status']}"]
    if "last" in stands:
        last, best = stands["last"], stands["best_by_validation_loss"]
        dagger = tables.DAGGER if stands["chosen_on_test_data"] else ""
        lines += [
            f"rounds: {stands['rounds_done']} of {stands['rounds']}, {stands['clients']} clients",
            *([f"ended early: {stands['reason']}"] if stands["reason"] else []),
            f"last evaluation, after round {last['round']}: personal models, mean top-1 over "
            f"clients' own test parts {last['personal_top1_test']:.2%}{dagger}, worst 5 % "
            f"{last['personal_top1_test_worst_5_percent']:.2%}{dagger}",
        ]
        if last["shared_top1_test"] is not None:
            lines.append(f"the shared model on the same parts: {last['shared_top1_test']:.2%}")
        pooled = last["personal_pooled_over_test_examples"]
        top1, ece, mce = (tables.percent(pooled[name]) for name in ("top1", "ece", "mce"))
        loss, brier = (tables.decimal(pooled[name]) for name in ("loss", "brier"))
        lines.append(
            f"personal models, pooled over all clients' test examples: top-1 {top1} %{dagger}, "
            f"loss {loss}{dagger}, Brier {brier}{dagger}, ECE {ece} %{dagger}, MCE {mce} %{dagger}"
        )
        if "to_target" in stands:
            lines.append(_reached(stands["to_target"], dagger))
        if best is not None:
            lines.append(
                f"least validation loss, after round {best['round']}: personal models' mean top-1 "
                f"on test parts {best['personal_top1_test']:.2%}{dagger}"
            )
        if dagger:
            lines.append(tables.FOOTNOTE)
        lines.append(f"digest: {stands['digest']}, of the data: {stands['federation']}")
        lines += [f"  {key} = {value}" for key, value in stands["settings"].items()]
    sizes = ", ".join(f"{name} {tables.nbytes(size)}" for name, size in stands["bytes"].items())
    return "\n".join([*lines, f"on disk: {sizes}"])
