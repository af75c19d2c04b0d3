"""A plan that serves before PyTorch: parameters, the cache, FLOPs of a prompt and of a token, what a token reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ledger.books import compile_plan
from ledger.books.compiled import Compiled
from ledger.books.serving.lengths import mean_kept
from ledger.books.serving.memory import cached_layers, kept_states, serve_of
from ledger.books.serving.passes import Phase, ServedRole, Shape, decode_shape, prompt_shape
from ledger.books.serving.totals import one_device
from ledger.evidence.verdicts import ComparedFigure
from ledger.lab.observed.device_step import AllocatedBytes
from ledger.lab.transformers.config import NoReferenceError, transformers_config
from ledger.lab.verification import checks, predicted
from ledger.lab.verification.checks import Progress, PyTorchJudge, judged_figures
from ledger.lab.verification.depth import Sample
from ledger.model.causes import OUTPUT
from ledger.model.elementwise import Lookup
from ledger.model.operations import Operation, total
from ledger.model.tensors import Tensor
from ledger.spec.plan import Lengths, Plan

if TYPE_CHECKING:
    from ledger.spec.plan import Model, Serve


NAMES = {"mamba2": "cache_params"}  # of the argument that takes the cache, where it has another one
EXPERTS = ".experts."  # in the names of parameters that are there once for each expert


def serving_model(model: Model) -> Any:
    """The model on meta tensors, in bf16, with products that FlopCounterMode knows; raises `NoReferenceError`."""
    import torch
    from transformers import AutoModelForCausalLM

    config = transformers_config(model)
    config._attn_implementation = "eager"  # noqa: SLF001 - as transformers has it
    config._experts_implementation = "batched_mm"  # noqa: SLF001 - FlopCounterMode has no formula of grouped_mm
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def run_forward_pass(model: Any, tokens: int, cache: Any) -> None:
    """One forward pass over new tokens after those of a cache; the last is scored."""
    import torch

    new = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    with torch.no_grad():
        model(new, use_cache=True, logits_to_keep=1, **{NAMES.get(model.config.model_type, "past_key_values"): cache})


def cached_elements(model: Model, tokens: int) -> int:
    """Elements of keys and values, of latents, or of states that the cache of so many tokens has."""
    from transformers import DynamicCache, StaticCache

    network, recurs = serving_model(model), any(group.attention.recurrent for group in model.groups)
    cache = DynamicCache(config=network.config) if recurs else StaticCache(config=network.config, max_cache_len=tokens)
    run_forward_pass(network, tokens, cache)
    return sum(part.numel() for layer in cache.layers for part in _cached_tensors(layer))


def _cached_tensors(layer: Any) -> Sequence[Any]:
    """The tensors of a layer in a cache of transformers."""
    if hasattr(layer, "recurrent_states"):
        return [*layer.conv_states.values(), *layer.recurrent_states.values()]
    return [layer.keys, layer.values]


def pass_flops(model: Model, serve: Serve, *, decodes: bool) -> int:
    """FLOPs of a prompt after its shared prefix, or of the token after it, as FlopCounterMode counts them."""
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import DynamicCache

    network, prompt = serving_model(model), serve.prompt.longest
    cache = DynamicCache(config=network.config)
    before, new = (prompt, 1) if decodes else (serve.prefix, prompt - serve.prefix)
    if before:
        run_forward_pass(network, before, cache)
    with FlopCounterMode(display=False) as counter:
        run_forward_pass(network, new, cache)
    return int(counter.get_total_flops())


def read_parameters(model: Model) -> int:
    """Parameters that one token uses: all, but for other rows of tables that are looked up and experts not chosen."""
    import torch

    network = serving_model(model)
    tables = {name for name, part in network.named_modules() if isinstance(part, torch.nn.Embedding)}
    shares = {group.mlp.experts: group.mlp.top_k for group in model.groups if group.mlp.experts}
    head, parameters = network.get_output_embeddings().weight, 0
    for name, weight in network.named_parameters():
        row = weight.shape[-1] if name.rpartition(".")[0] in tables else 0
        experts = weight.shape[0] if EXPERTS in name and weight.shape[0] in shares else 0
        if row:
            parameters += row + (weight.numel() if weight is head else 0)
        else:
            parameters += weight.numel() * shares[experts] // experts if experts else weight.numel()
    return parameters


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


# --- the ledger's answer ---


def predicted_cache_elements(compiled: Compiled) -> predicted.Figures:
    """Elements of the cache of one sequence at the end of its output, in all layers."""
    role = one_device(compiled.plan)
    serve = serve_of(role.plan)
    value = role.value(decode_shape(serve, Fraction(1)))
    layers = cached_layers(role, Tensor.elements)
    attention_elements = (Fraction(value(elements)) * mean_kept(serve, attention) for _, elements, attention in layers)
    states = (Fraction(value(elements)) for _, _, elements in kept_states(role, Tensor.elements))
    return {CACHE: int(sum((*attention_elements, *states), Fraction(0)))}


def prefill(compiled: Compiled) -> predicted.Figures:
    """FLOPs of all products of a prompt, masked scores included, as FlopCounterMode counts them."""
    role = one_device(compiled.plan)
    serve = serve_of(role.plan)
    return {PREFILL: pass_products(role, role.prefill, prompt_shape(serve, serve.prompt.longest))}


def decode(compiled: Compiled) -> predicted.Figures:
    """FLOPs of all products of the first token after a prompt, as FlopCounterMode counts them."""
    plan = compiled.plan
    role = one_device(replace(plan, serve=replace(serve_of(plan), output=Lengths.alike(2))))
    return {DECODE: pass_products(role, role.decode, decode_shape(serve_of(role.plan), Fraction(1)))}


def predicted_read_parameters(compiled: Compiled) -> predicted.Figures:
    """Parameters that the next token of one sequence reads."""
    role = one_device(compiled.plan)
    value = role.value(decode_shape(serve_of(role.plan), Fraction(1)))
    every = (unit.count * _read_elements(operation) for unit in role.decode.units for operation in unit.forward)
    return {READ: int(sum(Fraction(value(amount)) for amount in every))}


def pass_products(role: ServedRole, phase: Phase, shape: Shape) -> int:
    """FLOPs of all products of a pass, with masked scores."""
    amount = Fraction(0)
    for unit in phase.units:
        value = role.value(role.scored(shape) if unit.name == OUTPUT else shape)
        amount += Fraction(value(unit.count * total(operation.counted() for operation in unit.forward)))
    return int(amount)


def _read_elements(operation: Operation) -> object:
    if isinstance(operation, Lookup):
        return operation.output.elements()
    return total(tensor.elements() for tensor in operation.inputs if tensor.role == "weight")


# --- the judge's answer ---


def _figure(name: str, of: Callable[[Plan], int]) -> Callable[[Plan], checks.JudgeFigures]:
    return lambda plan: {name: AllocatedBytes(of(plan))}


def _experts_obstacle(plan: Plan) -> str:
    try:
        return ALL_EXPERTS if transformers_config(plan.model).model_type in RUNNING_ALL else ""
    except NoReferenceError as error:
        return str(error)


def _latents_obstacle(plan: Plan) -> str:
    return EXPANDED if any(group.attention.expanded for group in plan.model.groups) else _experts_obstacle(plan)


JUDGES = (
    PyTorchJudge(
        "parameters",
        "parameters",
        checks.parameters,
        predicted.parameters,
        lambda _: "",
        "transformers, on meta tensors",
    ),
    PyTorchJudge(
        "the cache of a sequence",
        CACHE,
        _figure(
            CACHE,
            lambda plan: cached_elements(plan.model, serve_of(plan).prompt.longest + serve_of(plan).output.longest),
        ),
        predicted_cache_elements,
        lambda _: "",
        "transformers' StaticCache, on meta tensors",
    ),
    PyTorchJudge(
        "FLOPs of a prompt",
        PREFILL,
        _figure(PREFILL, lambda plan: pass_flops(plan.model, serve_of(plan), decodes=False)),
        prefill,
        _experts_obstacle,
        "FlopCounterMode on meta tensors, unsharded, masked scores included",
    ),
    PyTorchJudge(
        "FLOPs of the token after it",
        DECODE,
        _figure(DECODE, lambda plan: pass_flops(plan.model, serve_of(plan), decodes=True)),
        decode,
        _latents_obstacle,
        "FlopCounterMode on meta tensors, unsharded",
    ),
    PyTorchJudge(
        "parameters that a token reads",
        READ,
        _figure(READ, lambda plan: read_parameters(plan.model)),
        predicted_read_parameters,
        lambda _: "",
        "transformers' parameters, without other rows of tables and experts that are not chosen",
    ),
)


def served_verdicts(plan: Plan, runs: tuple[Sample, ...], progress: Progress) -> Iterator[ComparedFigure]:
    """Every figure of a service that transformers can find in the weighted sum of `runs`, beside the ledger's."""
    compiled = compile_plan(plan)
    for judge in JUDGES:
        yield from judged_figures(judge, compiled, runs, progress)
