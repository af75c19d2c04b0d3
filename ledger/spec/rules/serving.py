"""Rules on plans that serve a model."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose

from ledger.numbers import percent
from ledger.spec.kernel_classes import BYTE_CACHES
from ledger.spec.parts import field_rows
from ledger.spec.paths import Places
from ledger.spec.plan import Accelerator, Kernels, Model, Parallelism, Precision, Serve, Stack
from ledger.spec.precision import TWO_OF_FOUR
from ledger.spec.problems import Problem
from ledger.spec.rules.device import peak_key

TRAINING = ("optimizer", "recompute", "train", "operations", "data")
SERVED_AXES = ("data", "tensor", "pipeline", "expert", "stages", "ends")  # of `parallelism`, what serving knows
WIDE_CACHES = ("fp32", "fp16", "bf16")
WHOLE = 1e-6  # by how much shares may miss their sum of 1


def plans_train_or_serve(at: Places) -> Iterator[Problem]:
    """A plan is of a run or of a service."""
    if "run" in at.origins and "serve" in at.origins:
        message = "`run` and `serve` in one plan: it trains or it serves"
        yield Problem(at("serve"), message, "leave one of the two out, or write a plan for each")


def serving_has_parts_of_its_own(serve: Serve | None, at: Places) -> Iterator[Problem]:
    """What only training has is no part of a plan that serves."""
    for part in TRAINING if serve else ():
        if at.is_stated_by_plan(part):
            yield Problem(at(part), f"`{part}` is of training, and this plan serves", f"leave `{part}` out")


def serving_has_axes_of_its_own(serve: Serve | None, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Replicas, tensor, pipeline and expert parallelism are how serving is laid out here."""
    for row in field_rows(Parallelism) if serve else ():
        stated = getattr(parallelism, row.attribute)
        default = getattr(Parallelism(), row.attribute)
        if row.key not in SERVED_AXES and at.is_stated_by_plan(f"parallelism.{row.key}") and stated != default:
            message = f"`parallelism.{row.key}` is not modelled of a plan that serves"
            yield Problem(at(f"parallelism.{row.key}"), message, "lay it out over data, tensor, pipeline and expert")


def sequences_in_flight_are_stated_once(serve: Serve | None, at: Places) -> Iterator[Problem]:
    """Sequences in flight and requests that arrive follow from each other."""
    if serve and (serve.concurrency is None) == (serve.arrival_rate is None):
        pair = "both `concurrency` and" if serve.concurrency else "neither `concurrency` nor"
        message = f"`serve` states {pair} `arrival_rate`, of which each follows from the other"
        yield Problem(at("serve"), message, "one of `concurrency: 64` and `arrival_rate: 4 requests/s`")


def served_tokens_see_each_other_by_known_kinds(serve: Serve | None, model: Model, at: Places) -> Iterator[Problem]:
    """What an author writes out over a whole sequence says nothing of a token that finds the others in a cache."""
    for group in model.groups if serve else ():
        for part in [part for part, custom in group.written.items() if custom.mixes]:
            message = f"{part} of `{group.name}` is written out over a sequence, and this plan reads a cache"
            yield Problem(at("serve"), message, f"a kind of {part} that is known, or `run:` for training")


def attention_over_a_cache_is_one_kernel(serve: Serve | None, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """Plain operators would write the scores of all that waits, and read them again."""
    if serve and kernels.attention in ("eager", "math") and at.is_stated_by_plan("kernels.attention"):
        message = f"{kernels.attention} attention writes scores, which is not modelled of a plan that serves"
        yield Problem(at("kernels.attention"), message, "`kernels: {attention: flash}`, or leave it out")


def shares_are_of_all(serve: Serve | None, at: Places) -> Iterator[Problem]:
    """Every sequence has one of the lengths of a distribution."""
    for name in ("prompt", "output") if serve else ():
        shares = float(sum(share for _, share in getattr(serve, name).parts))
        if not isclose(shares, 1, abs_tol=WHOLE):
            message = f"shares of serve.{name} add up to {shares:.4g}"
            yield Problem(at(f"serve.{name}"), message, "shares of all sequences add up to 1, or 100 %")


def prompts_are_longer_than_their_prefix(serve: Serve | None, at: Places) -> Iterator[Problem]:
    """Something of every prompt is its own."""
    if serve and serve.prefix >= serve.prompt.shortest:
        message = f"serve.prefix = {serve.prefix} tokens, and a prompt has {serve.prompt.shortest}"
        yield Problem(at("serve.prefix"), message, f"at most `prefix: {serve.prompt.shortest - 1} tokens`")


def steps_give_no_more_than_an_answer(serve: Serve | None, at: Places) -> Iterator[Problem]:
    """A step gives at most what is left of an answer, however many tokens are guessed."""
    if serve and serve.speculative > max(1.0, most := float(serve.output.mean - 1)):
        message = f"serve.speculative = {serve.speculative:g} tokens a step, and an answer has {most:g} after its first"
        yield Problem(at("serve.speculative"), message, f"at most `speculative: {max(1.0, most):g}`")


def served_sequences_are_longer_than_the_model(serve: Serve | None, model: Model, at: Places) -> Iterator[Problem]:
    """Rotary positions go on beyond what the model was trained with, but what it answers there nobody has seen."""
    longest = serve.prompt.longest + serve.output.longest if serve else 0
    if not model.learned_positions and 0 < model.max_seq_len < longest:
        message = f"prompt and output have {longest} tokens, but the model was made for {model.max_seq_len}"
        yield Problem(at("serve.prompt"), message, f"at most {model.max_seq_len} tokens together")


def served_models_have_layers(serve: Serve | None, model: Model, at: Places) -> Iterator[Problem]:
    """A count of parameters has no attention, and so no cache."""
    if serve and model.bare:
        yield Problem(at("model"), "a bare parameter count cannot be served: it has no layers", "name a model")


def served_models_decode(serve: Serve | None, model: Model, at: Places) -> Iterator[Problem]:
    """What sees a sequence in both directions makes no token after it, and keeps no cache."""
    if serve and model.encodes and not model.encoder_groups:
        input_words = "images" if model.image else "a sequence in both directions"
        message = f"the model reads {input_words}, and answers no token after token"
        yield Problem(at("serve"), message, "`run:` for training; what serves here is a decoder")


def served_positions_reach(serve: Serve | None, model: Model, at: Places) -> Iterator[Problem]:
    """Learned positions are as many as a sequence has tokens."""
    longest = serve.prompt.longest + serve.output.longest if serve else 0
    if 0 < model.learned_positions < longest:
        message = f"prompt and output have {longest} tokens, but the model has {model.learned_positions} positions"
        yield Problem(at("serve.prompt"), message, f"at most {model.learned_positions} tokens together")


def caches_have_a_kernel(serve: Serve | None, precision: Precision, at: Places) -> Iterator[Problem]:
    """Kernels over a cache in half precision and in bytes were timed; what brings four bits back takes time too."""
    if serve and precision.cache and precision.cache not in (*WIDE_CACHES, *BYTE_CACHES):
        message = f"attention over a cache in {precision.cache} was timed by nobody: it is priced as one in bf16"
        yield Problem(at("precision.cache"), message, "its bytes are exact; seconds are those of fewer bytes alone")


def engines_are_described(serve: Serve | None, stack: Stack, at: Places) -> Iterator[Problem]:
    """A stack that trains says nothing of an engine: of its steps, its batches, its attention over a cache."""
    if serve and "stack.engine" not in at.origins:
        message = f"the stack {stack.name} is of training, and says nothing of an engine: steps take no host time"
        yield Problem(at("stack"), message, "a stack that serves, as in `stack: vllm-2025`, or leave `stack` out")


def engines_train_nothing(serve: Serve | None, stack: Stack, at: Places) -> Iterator[Problem]:
    """An engine has no backward pass."""
    if serve is None and "stack.engine" in at.origins:
        message = f"the stack {stack.name} is an engine that serves, and this plan trains"
        yield Problem(at("stack"), message, "a stack that trains, as in `stack: pytorch-fsdp2-2025`")


def pruned_weights_serve(
    serve: Serve | None, accelerator: Accelerator, precision: Precision, at: Places
) -> Iterator[Problem]:
    """Zeros among weights are of a model that answers; a kernel that gains from them reads packed weights."""
    pruned, where = precision.pruned, at("precision.pruned")
    if pruned is None:
        return
    if serve is None:
        message = "`pruned` is of serving, and this plan trains: it keeps every weight, and a mask beside it"
        yield Problem(where, message, "leave `pruned` out, or `serve:` in place of `run:`")
    if pruned.pattern == TWO_OF_FOUR and 2 * pruned.share != 1:
        message = f"2:4 makes half of the weights zero, and share = {percent(float(pruned.share))}"
        yield Problem(where, message, "leave `share` out, or `pattern: unstructured`")
    if pruned.kernel == "sparse" and not pruned.packed:
        yield Problem(where, "a sparse kernel reads packed weights, and storage = dense", "leave `storage` out")
    if pruned.unpacks and precision.weights.is_stored_only:
        message = (
            f"packed weights in {precision.weights.base} that are unpacked before they are multiplied: not modelled"
        )
        yield Problem(where, message, "`storage: dense`, or `kernel: sparse`")
    if pruned.skips and peak_key(precision.compute) not in accelerator.sparse_peak:
        units = "tensor cores" if accelerator.kind == "gpu" else "matrix units"
        formats = ", ".join(accelerator.sparse_peak)
        lacks = f"no 2:4 sparse {units}" + (f" for {precision.compute}: they multiply {formats}" if formats else "")
        help_text = "`pruned: {pattern: 2:4, kernel: dense}` multiplies the zeros; other chips state a `sparse_peak`"
        yield Problem(where, f"{accelerator.title} has {lacks}", help_text)


def served_formats_are_stored(serve: Serve | None, precision: Precision, at: Places) -> Iterator[Problem]:
    """Formats of serving are stated by part; a recipe quantises what training keeps wide."""
    if serve and precision.matmul is not None:
        message = "`precision.matmul` is a recipe of training, and this plan serves"
        help_text = "state what is stored and multiplied: `{base: bf16-true, weights: fp8_e4m3, compute: fp8_e4m3}`"
        yield Problem(at("precision"), message, help_text)
