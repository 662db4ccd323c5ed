"""How a run stands, from its files alone: settings, progress, figures, sizes."""

from pathlib import Path
from typing import Any

from isthmus.errors import IsthmusError
from isthmus.metrics import spread
from isthmus.report import records, tables


def read(path: Path) -> dict[str, Any]:
    """Collects what is known of a run."""
    sizes = {file.name: file.stat().st_size for file in sorted(path.glob("*")) if file.is_file()}
    try:
        run = records.read(path)
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
        "rounds_done": int(run.rounds.round[-1]) if len(run.rounds.round) else 0,
        "rounds": run.settings.get("rounds"),
        "clients": len(run.federation.client),
        "last": {
            "round": run.last,
            "personal_top1_test": float(top1.mean()),
            "personal_top1_test_worst_5_percent": spread.worst(top1),
            "shared_top1_test": records.mean_or_none(run.over_clients("top1", "shared")),
        },
        "best_by_validation_loss": None
        if best is None
        else {"round": best, "personal_top1_test": curve[best]},
        "chosen_on_test_data": run.chosen_on_test,
        "digest": run.summary.get("digest"),
        "federation": run.split_digest,
        "settings": dict(run.settings),
        "bytes": sizes,
    }


def text(stands: dict[str, Any]) -> str:
    """Writes it for a person."""
    lines = [f"{stands['run']}: {stands['status']}"]
    if "last" in stands:
        last, best = stands["last"], stands["best_by_validation_loss"]
        dagger = tables.DAGGER if stands["chosen_on_test_data"] else ""
        lines += [
            f"rounds: {stands['rounds_done']} of {stands['rounds']}, {stands['clients']} clients",
            f"last evaluation, after round {last['round']}: personal models, mean top-1 over "
            f"clients' own test parts {last['personal_top1_test']:.2%}{dagger}, worst 5 % "
            f"{last['personal_top1_test_worst_5_percent']:.2%}{dagger}",
        ]
        if last["shared_top1_test"] is not None:
            lines.append(f"the shared model on the same parts: {last['shared_top1_test']:.2%}")
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
