"""A plan that serves before PyTorch: parameters, the cache, FLOPs of a prompt and of a token, what a token reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from ledger.books import compile_plan
from ledger.books.results import Compiled
from ledger.books.serving.lengths import mean_kept
from ledger.books.serving.memory import cached_layers, kept_states, serve_of
from ledger.books.serving.passes import Phase, ServedRole, Shape, decode_shape, prompt_shape
from ledger.books.serving.totals import one_device
from ledger.evidence.verdicts import ComparedFigure
from ledger.lab.observed import served_passes
from ledger.lab.observed.device_step import AllocatedBytes
from ledger.lab.transformers.config import NoReferenceError, transformers_config
from ledger.lab.verification import checks, predicted
from ledger.lab.verification.checks import Judge, Progress, judged_figures
from ledger.lab.verification.depth import Sample
from ledger.model.elementwise import Lookup
from ledger.model.fsdp_units import OUTPUT
from ledger.model.operations import Operation, total
from ledger.model.tensors import Tensor
from ledger.spec.plan import Lengths, Plan

CACHE, READ = "serve.cache.elements", "parameters.read"
PREFILL, DECODE = "flops.counter.prefill", "flops.counter.decode"
RUNNING_ALL = ("llama4_text",)  # models of transformers whose experts all multiply every token (Llama4TextExperts)
ALL_EXPERTS = "transformers multiplies every token by every expert of this model, and zeroes what was not chosen"
EXPANDED = "latent attention decodes in the latent here; transformers expands the cache for every token"


def judged_service(plan: Plan) -> tuple[Plan, list[str]]:
    """The service in the form in which transformers answers, and what was changed for that."""
    serve, notes = serve_of(plan), []
    longest = replace(serve, prompt=Lengths.alike(serve.prompt.longest), output=Lengths.alike(serve.output.longest))
    for name, lengths in (("prompt", serve.prompt), ("output", serve.output)):
        if lengths.longest != lengths.shortest:
            notes.append(f"serve.{name} = {lengths.longest} tokens, its longest: transformers runs one sequence")
    serve = longest
    if serve.chunk < serve.prompt.longest - serve.prefix:
        serve = replace(serve, chunk=serve.prompt.longest)
        notes.append("serve.chunk = the whole prompt, in one pass")
    return replace(plan, serve=serve), notes


# --- the ledger's answer ------------------------------------------------------------------------


def cached(compiled: Compiled) -> predicted.Figures:
    """Elements of the cache of one sequence at the end of its output, in all layers."""
    one = one_device(compiled.plan)
    serve = serve_of(one.plan)
    value = one.value(decode_shape(serve, Fraction(1)))
    layers = cached_layers(one, Tensor.elements)
    kept = (Fraction(value(each)) * mean_kept(serve, attention) for _, each, attention in layers)
    states = (Fraction(value(each)) for _, _, each in kept_states(one, Tensor.elements))
    return {CACHE: int(sum((*kept, *states), Fraction(0)))}


def prefill(compiled: Compiled) -> predicted.Figures:
    """FLOPs of all products of a prompt, masked scores included, as FlopCounterMode counts them."""
    one = one_device(compiled.plan)
    serve = serve_of(one.plan)
    return {PREFILL: counted(one, one.prefill, prompt_shape(serve, serve.prompt.longest))}


def decode(compiled: Compiled) -> predicted.Figures:
    """The same of the first token after a prompt."""
    plan = compiled.plan
    one = one_device(replace(plan, serve=replace(serve_of(plan), output=Lengths.alike(2))))
    return {DECODE: counted(one, one.decode, decode_shape(serve_of(one.plan), Fraction(1)))}


def read(compiled: Compiled) -> predicted.Figures:
    """Parameters that the next token of one sequence reads."""
    one = one_device(compiled.plan)
    value = one.value(decode_shape(serve_of(one.plan), Fraction(1)))
    every = (unit.count * _elements(operation) for unit in one.decode.units for operation in unit.forward)
    return {READ: int(sum(Fraction(value(amount)) for amount in every))}


def counted(role: ServedRole, phase: Phase, shape: Shape) -> int:
    """FLOPs of all products of a pass, with masked scores."""
    amount = Fraction(0)
    for unit in phase.units:
        value = role.value(role.scored(shape) if unit.name == OUTPUT else shape)
        amount += Fraction(value(unit.count * total(one.counted() for one in unit.forward)))
    return int(amount)


def _elements(operation: Operation) -> object:
    if isinstance(operation, Lookup):
        return operation.output.elements()
    return total(tensor.elements() for tensor in operation.inputs if tensor.role == "weight")


# --- the judge's --------------------------------------------------------------------------------


def _figure(name: str, of: Callable[[Plan], int]) -> Callable[[Plan], checks.Found]:
    return lambda plan: {name: AllocatedBytes(of(plan))}


def _always(_: Plan) -> str:
    return ""


def _of_experts(plan: Plan) -> str:
    try:
        return ALL_EXPERTS if transformers_config(plan.model).model_type in RUNNING_ALL else ""
    except NoReferenceError as error:
        return str(error)


def _of_latents(plan: Plan) -> str:
    return EXPANDED if any(group.attention.expanded for group in plan.model.groups) else _of_experts(plan)


JUDGES = (
    Judge(
        "parameters", "parameters", checks.parameters, predicted.parameters, _always, "transformers, on meta tensors"
    ),
    Judge(
        "the cache of a sequence",
        CACHE,
        _figure(CACHE, lambda plan: served_passes.cached_elements(plan.model, _tokens(plan))),
        cached,
        _always,
        "transformers' StaticCache, on meta tensors",
    ),
    Judge(
        "FLOPs of a prompt",
        PREFILL,
        _figure(PREFILL, lambda plan: served_passes.pass_flops(plan.model, serve_of(plan), decodes=False)),
        prefill,
        _of_experts,
        "FlopCounterMode on meta tensors, unsharded, masked scores included",
    ),
    Judge(
        "FLOPs of the token after it",
        DECODE,
        _figure(DECODE, lambda plan: served_passes.pass_flops(plan.model, serve_of(plan), decodes=True)),
        decode,
        _of_latents,
        "FlopCounterMode on meta tensors, unsharded",
    ),
    Judge(
        "parameters that a token reads",
        READ,
        _figure(READ, lambda plan: served_passes.read_parameters(plan.model)),
        read,
        _always,
        "transformers' parameters, without other rows of tables and experts that are not chosen",
    ),
)


def _tokens(plan: Plan) -> int:
    serve = serve_of(plan)
    return serve.prompt.longest + serve.output.longest


def served_verdicts(plan: Plan, runs: tuple[Sample, ...], progress: Progress) -> Iterator[ComparedFigure]:
    """Every figure of a service that transformers can find in the weighted sum of `runs`, beside the ledger's."""
    compiled = compile_plan(plan)
    for judge in JUDGES:
        yield from judged_figures(judge, compiled, runs, progress)
