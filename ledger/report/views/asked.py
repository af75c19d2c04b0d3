"""What a report is asked to decide, and of which run: the model, how far it is trained, and in what steps."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.counts import steps
from ledger.books.results import Number
from ledger.spec.documents import DocumentLength, Documents
from ledger.spec.variants import changed_title, name_of_base

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.spec.plan import Plan


def question(plan: Plan, totals: Mapping[str, Number]) -> str:
    """The decision that the plan asks for in its own words, else whether to train its model as it says."""
    if plan.decision:
        return plan.decision
    length = f" on {length_of(plan)}" if plan.run.token_count else ""
    return f"Shall we train {model_name(plan, totals)}{length} with {devices_line(plan)}?"


def model_name(plan: Plan, totals: Mapping[str, Number]) -> str:
    """The model by its title; one without, by what it was changed from, or by how large it is."""
    model, base = plan.model, name_of_base(plan.model.name)
    if model.title == changed_title(base):
        return f"{base} with changes"
    if model.title and model.title != model.name:
        return model.title
    return f"a model of {numbers.count(totals['parameters'])} parameters"


def length_of(plan: Plan) -> str:
    """What a run reads, in images of a model of such, in tokens of any other."""
    if plan.model.image:
        return f"{numbers.trimmed(numbers.count((plan.run.token_count or 0) / plan.run.seq_len))} images"
    return tokens_of(plan.run.token_count or 0)


def tokens_of(tokens: Number) -> str:
    """Tokens of a run, with no more digits than they have."""
    return f"{numbers.trimmed(numbers.count(tokens))} tokens"


def devices_line(plan: Plan) -> str:
    """How many devices of which kind."""
    return f"{numbers.integer(plan.cluster.devices)} × {plan.accelerator.title}"


def run_lines(plan: Plan, totals: Mapping[str, Number]) -> tuple[tuple[str, str], ...]:
    """The model by its parameters, the run by its tokens and steps, the batch by its tokens, as far as known."""
    rows = (
        ("model", parameters_line(totals, "image" if plan.model.image else "token")),
        ("run", run_line(plan, totals)),
        ("batch", "" if plan.model.bare else batch_line(plan)),
    )
    return tuple((name, text) for name, text in rows if text)


def parameters_line(totals: Mapping[str, Number], each: str = "token") -> str:
    """Parameters of the model, those that `each` token or image uses, and those that are trained where not all are."""
    whole = totals["parameters"]
    active, trained = totals.get("parameters.active", whole), totals.get("parameters.trainable", whole)
    said = [f"{numbers.count(whole)} parameters"]
    said.append(f"{'all' if active == whole else numbers.count(active)} active in each {each}")
    said += [f"{numbers.count(trained)} of them trained"] if trained != whole else []
    return ", ".join(said)


def run_line(plan: Plan, totals: Mapping[str, Number]) -> str:
    """Tokens of the run, how many that is for each parameter, and its optimizer steps; of images how many."""
    tokens = plan.run.token_count
    if not tokens:
        return ""
    if plan.model.image:
        read = "" if plan.model.stem else f"{tokens_of(tokens)}, "  # where an image is no sequence
        return f"{length_of(plan)}, {read}in {numbers.integer(steps(plan))} steps"
    said = f"{tokens_of(tokens)}, {numbers.plain(tokens / totals['parameters'])} a parameter"
    return said if plan.model.bare else f"{said}, in {numbers.integer(steps(plan))} steps"


def batch_line(plan: Plan) -> str:
    """Tokens and sequences of a step and of a micro-batch, and what is packed into one; of a model of images those."""
    run, image, packed = plan.run, plan.model.image, documents_of(plan.run.documents)
    if image:
        said = f"{numbers.integer(run.global_batch)} images a step, {numbers.integer(run.micro_batch)} in a micro-batch"
        if not image.patch:
            return f"{said}: each {image.channels} x {image.height} x {image.width}"
        each = f"{numbers.integer(run.seq_len)} tokens, {numbers.integer(image.patches)} patches and a class token"
        return f"{said}: each {each}"
    return (
        f"{numbers.count(run.global_batch * run.seq_len)} tokens a step: {numbers.integer(run.global_batch)} sequences "
        f"of {numbers.integer(run.seq_len)} tokens, {numbers.integer(run.micro_batch)} in a micro-batch{packed}"
    )


def documents_of(documents: Documents | None) -> str:
    """What is packed into a sequence, after a semicolon; nothing where a sequence is one text."""
    if documents is None:
        return ""
    lengths = documents.lengths or (DocumentLength(documents.length, Fraction(1)),)
    shares = [
        f"{numbers.integer(one.tokens)}{f' ({numbers.percent(one.share)})' if one.share < 1 else ''}" for one in lengths
    ]
    return f"; packed documents of {', '.join(shares)} tokens"
