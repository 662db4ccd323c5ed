"""What the people of a site are shown before and after they agree."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus_sites.consent import Consent
    from isthmus_sites.preparation import Preview


def describe_preview(seen: "Preview") -> Iterator[str]:
    """Says what taking part would mean."""
    from isthmus.experiment import registry
    from isthmus.report.tables.formats import format_bytes

    part, study = seen.part, seen.part.study
    train, validation, test = seen.data.sizes(part.row)
    about = registry.build("method", study.method).about()
    counts = seen.data.label_counts(part.row).tolist()
    yield f"examples: {train:,} to train on, {validation:,} to choose on, {test:,} to test on"
    names = seen.data.arrays.labels or range(len(counts))
    held = (f"{name}: {n:,}" for name, n in zip(names, counts, strict=True) if n)
    yield f"classes: {', '.join(held)}"
    yield from (f"note: {note}" for note in seen.data.notes)
    yield f"method: {study.method['name']}, {study.rounds} rounds"
    if part.newcomer:
        members = ", ".join(study.data["names"])
        yield f"this site is none of {members}: it could join as a newcomer, with --newcomer"
        yield f"has a model: {about.newcomer}; it takes part in no round"
        yield "would leave this site: how its models do, unless --no-figures"
    else:
        yield f"would leave this site: {about.up}; its counts of examples; how its models do"
    yield f"would stay: the data; {about.home}; the personal models"
    for function, told in seen.discloses.items():
        yield f"would disclose, in {function}: {told}; only with --disclose {function}"
    sends = "" if part.newcomer else f"a round sends {format_bytes(seen.bytes_up)}; "
    yield f"{sends}tried here in {seen.seconds:.1f} s"


def describe_consent(agreed: "Consent") -> Iterator[str]:
    """Says what a site agreed to."""
    experiment = agreed.study
    part = f"client {agreed.client} of {experiment.clients}"
    part = f"a newcomer to {experiment.clients} sites" if agreed.newcomer else part
    yield f"agreed: {agreed.digest}, as {part}"
    yield f"method: {experiment.method['name']}, {experiment.rounds} rounds; data: {agreed.data}"
    yield f"discloses more in: {', '.join(agreed.disclose) or 'nothing'}"
    yield (
        f"floors: {agreed.minimum_examples} examples to train on, {agreed.minimum_label_count} of "
        "each class whose count is told"
    )
    kept = "they stay here" if agreed.newcomer else "only in sums with others'"
    kept = "the server may keep them" if agreed.figures else kept
    yield f"figures of this site: {kept}"
    yield "next: isthmus join start"
