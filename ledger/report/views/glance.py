"""The plan at a glance: its model, layout, batch, formats and software, a line each."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.counts import steps
from ledger.books.results import Number
from ledger.spec.documents import DocumentLength, Documents
from ledger.spec.expand import changed_title, name_of_base
from ledger.spec.parallelism import AXES
from ledger.spec.precision import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.spec.plan import Plan, Serve
    from ledger.spec.precision import WeightFormats


def glance(chosen: Plan) -> tuple[tuple[str, str], ...]:
    """The plan in ten lines, fewer where only a parameter count is known, or where it serves."""
    if chosen.serve:
        return glance_of_service(chosen, chosen.serve)
    rows = (
        ("model", model_line(chosen)),
        ("devices", devices_line(chosen)),
        ("layout", layout_line(chosen)),
        ("batch", "" if chosen.model.bare else batch_line(chosen)),
        ("training", length_of(chosen) if chosen.run.token_count else ""),
        ("precision", precision_line(chosen)),
        ("recompute", "" if chosen.model.bare else recompute_line(chosen)),
        ("trained", train_line(chosen)),
        ("optimizer", chosen.optimizer.name),
        ("software", chosen.stack.title),
        ("kernels", "" if chosen.model.bare else kernel_line(chosen)),
    )
    return tuple((name, text) for name, text in rows if text)


def glance_of_service(chosen: Plan, serve: Serve) -> tuple[tuple[str, str], ...]:
    """A plan that serves in a few lines."""
    formats = [(dtype, whose) for dtype, whose in _weight_formats(chosen.precision.weights)]
    formats += [(chosen.precision.compute, "compute"), (chosen.precision.cache or "as matmuls write", "cache")]
    load = f"{serve.arrival_rate:g} requests a second" if serve.arrival_rate else f"{serve.concurrency} sequences"
    chunk = f"at most {numbers.integer(serve.chunk)} tokens of prompts in a step"
    return (
        ("model", model_line(chosen)),
        ("devices", devices_line(chosen)),
        ("layout", layout_line(chosen)),
        ("lengths", f"prompts of {serve.prompt}, outputs of {serve.output}"),
        ("load", f"{load}, {chunk}"),
        ("formats", "; ".join(f"{dtype}: {whose}" for dtype, whose in formats)),
        ("software", chosen.stack.title),
    )


def model_line(chosen: Plan) -> str:
    """The model in a line."""
    model = chosen.model
    if model.bare:
        return f"{model.title or model.name}: a count and nothing else"
    layers = sum(group.repeat for group in model.groups)
    return f"{model.title}: {layers} layers of width {numbers.integer(model.d_model)}"


def kernel_line(chosen: Plan) -> str:
    """Which implementation serves each part that the model has."""
    groups = chosen.model.groups
    absent = set() if any(group.mlp.experts for group in groups) else {"experts", "weighing", "router"}
    absent |= set() if any(group.attention.rotary or group.attention.rope_head_dim for group in groups) else {"rotary"}
    absent |= set() if any(group.attention.recurrent for group in groups) else {"scan"}
    absent |= set() if chosen.model.attends else {"attention"}
    named = {
        part.name: getattr(chosen.kernels, part.name) for part in fields(chosen.kernels) if part.name not in absent
    }
    return ", ".join(f"{name.replace('_', ' ')} {choice}" for name, choice in named.items() if choice)


def layout_line(chosen: Plan) -> str:
    """The degrees above one, and what ZeRO shards."""
    degrees = [f"{name} {getattr(chosen.parallelism, name)}" for name in AXES if getattr(chosen.parallelism, name) > 1]
    zero = [f"ZeRO-{chosen.parallelism.zero}"] if chosen.parallelism.zero else []
    zero += [f"in {chosen.parallelism.replicate} replicas"] if chosen.parallelism.replicate > 1 else []
    sequence = ["sequence parallel"] if chosen.parallelism.sequence != "off" else []
    how = [chosen.parallelism.context_exchange.replace("_", "-")]
    how += ["zigzag"] if chosen.parallelism.context_balance == "zigzag" else []
    exchange = [f"context by {', '.join(how)}"] if chosen.parallelism.context > 1 else []
    offload = [f"{', '.join(chosen.parallelism.offload.kinds)} on the host"] if chosen.parallelism.offload else []
    return "; ".join([", ".join([*degrees, *zero, *sequence]), *exchange, *offload]) or "one device"


def precision_line(chosen: Plan) -> str:
    """The dtypes by role, equal ones together."""
    precision = chosen.precision
    roles = ("gradients", "master", "states", "compute", "reduction")
    named = [(str(getattr(precision, role) or "none"), role) for role in roles]
    pairs = sorted([*_weight_formats(precision.weights), *named], key=lambda pair: pair[0])
    together = groupby(pairs, key=lambda pair: pair[0])
    return "; ".join(f"{dtype}: {', '.join(role for _, role in group)}" for dtype, group in together)


def _weight_formats(formats: WeightFormats) -> list[tuple[str, str]]:
    """Each format of weights with whose it is."""
    if formats.every:
        return [(formats.every, "weights")]
    parts = {"base": "matrices of layers"} | {name: name for name in ("experts", *PARTS)}
    return [(str(getattr(formats, name)), label) for name, label in parts.items() if getattr(formats, name)]


def train_line(chosen: Plan) -> str:
    """Which weights are trained, or which have adapters and of which rank; empty where all are trained."""
    train, lora = chosen.train, chosen.train.lora
    if lora:
        ranks = {", ".join(lora.targets): lora.rank} if isinstance(lora.rank, int) else lora.rank
        return f"low-rank adapters of rank {', '.join(f'{rank} on {names}' for names, rank in ranks.items())}"
    return {"only": "only ", "frozen": "all but "}.get(train.kind, "") + ", ".join(train.names)


def recompute_line(chosen: Plan) -> str:
    """Which activations are rebuilt, in the words of the plan."""
    policy = chosen.recompute
    odd = ", of matmuls every second" if policy.matmuls == "every_second" else ""
    lines = {
        "every": f"every {policy.every} layers",
        "layers": f"the first {policy.layers} layers of a stage",
        "segment": f"segments of {policy.segment} layers" if policy.segment else "segments of sqrt(L) layers",
        "components": ", ".join(policy.components),
        "keep": f"all but {', '.join(policy.keep)}{odd}",
    }
    return lines.get(policy.policy, policy.policy)


# --- the decision asked for, and the run ---


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


def parameters_line(totals: Mapping[str, Number], unit: str = "token") -> str:
    """Parameters of the model, those that `each` token or image uses, and those that are trained where not all are."""
    parameters = totals["parameters"]
    active, trained = totals.get("parameters.active", parameters), totals.get("parameters.trainable", parameters)
    said = [f"{numbers.count(parameters)} parameters"]
    said.append(f"{'all' if active == parameters else numbers.count(active)} active in each {unit}")
    said += [f"{numbers.count(trained)} of them trained"] if trained != parameters else []
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
        image_text = (
            f"{numbers.integer(run.seq_len)} tokens, {numbers.integer(image.patches)} patches and a class token"
        )
        return f"{said}: each {image_text}"
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
        f"{numbers.integer(document.tokens)}{f' ({numbers.percent(document.share)})' if document.share < 1 else ''}"
        for document in lengths
    ]
    return f"; packed documents of {', '.join(shares)} tokens"
