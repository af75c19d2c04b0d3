"""Plans of models with an encoder before their decoder: counts by hand, what layers share, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.books.compiler import compile_plan, compile_totals
from ledger.books.results import Account
from ledger.search.pricing import pieces, price_piece
from ledger.search.space import space_of, with_layout
from ledger.spec.load import load_plan
from tests.model import plans

SOURCE, TARGET, BATCH = 53, 19, 3
D, HEADS, WIDTH, FF, VOCAB, BUCKETS, LAYERS = 46, 5, 14, 71, 211, 32, 3  # of plans.T5
INNER = HEADS * WIDTH
EAGER = {"attention": "eager", "norm": "eager"}
HEARD, BANDS, STREAM = 53, 13, 40  # of plans.WHISPER: tokens of its source
RUN = {"seq_len": TARGET, "source_len": SOURCE, "micro_batch": BATCH, "global_batch": BATCH, "tokens": "1900 tokens"}


def t5(**parts: object) -> Compiled:
    """The small T5 on one device, three sources at once."""
    return plans.compiled(**({"model": plans.T5, "run": RUN, "kernels": EAGER} | parts))


def whisper(**parts: object) -> Compiled:
    """The small Whisper on one device, three samples of sound at once."""
    run = {key: value for key, value in RUN.items() if key != "source_len"}
    return plans.compiled(**({"model": plans.WHISPER, "run": run} | parts))


def test_parameters_are_those_of_both_sides_and_one_vocabulary() -> None:
    """Raffel et al. 2020, section 2.1: a table of biases for each side, norms without biases, one tied embedding."""
    attention, feeding = 4 * D * INNER, 2 * D * FF
    encoder = LAYERS * (attention + feeding + 2 * D) + D
    decoder = LAYERS * (2 * attention + feeding + 3 * D) + D
    assert t5().totals["parameters"] == VOCAB * D + encoder + decoder + 2 * BUCKETS * HEADS


@pytest.mark.parametrize("weights", ["nf4", "int8", "int4"])
def test_convolutions_and_tables_are_not_quantised(weights: str) -> None:
    """bitsandbytes replaces nn.Linear alone: what an encoder of sound begins with keeps the format of embeddings."""
    precision = {"base": "bf16-true", "weights": {"base": weights, "head": "bf16"}}
    train = {"lora": {"rank": 4, "targets": ["q", "v"]}}
    narrow = whisper(precision=precision, train=train)
    wide = whisper(precision={"base": "bf16-true"}, train=train)
    first, second = (
        {one.cause.name: one.amount for one in found.accounts if str(one.resource) == "memory.weights"}
        for found in (narrow, wide)
    )
    begins = {name for name in second if name.startswith("source_embedding/")}
    assert len(begins) == 5
    assert {name: first[name] for name in begins} == {name: second[name] for name in begins}
    assert sum(first.values()) < sum(second.values())


def test_flops_are_products_of_source_target_and_both() -> None:
    """2 FLOPs a point: keys and values of the source once a layer of the decoder, scores of each pair of tokens."""

    def scores(queries: int, keys: int) -> int:
        return 2 * 2 * queries * keys * INNER

    encoder = SOURCE * 2 * (4 * D * INNER + 2 * D * FF) + scores(SOURCE, SOURCE)
    crossed = 2 * 2 * (TARGET + SOURCE) * D * INNER + scores(TARGET, SOURCE)
    decoder = TARGET * 2 * (4 * D * INNER + 2 * D * FF) + scores(TARGET, TARGET) + crossed
    head = 2 * TARGET * D * VOCAB
    assert t5().totals["flops.counter.forward"] == BATCH * (LAYERS * (encoder + decoder) + head)


def test_the_first_layer_of_a_side_has_the_table_of_its_biases() -> None:
    """Every other layer reads what it looked up, so that nothing but the table and its index sets the first apart."""
    totals = t5().totals
    for side, length in (("encoder", SOURCE), ("decoder", TARGET)):
        index = 8 * length * length
        assert totals[f"saved.per_layer.{side}.first"] - totals[f"saved.per_layer.{side}"] == index


def held(compiled: Compiled, name: str) -> list[Account]:
    """The stocks of one account."""
    return [one for one in compiled.accounts if one.account == name and one.resource.kind == "memory"]


def test_what_an_encoder_gives_is_held_once_and_its_gradients_add_up() -> None:
    """All layers of the decoder read one tensor; each but the first in backward adds its gradient to the sum."""
    compiled = t5(precision="fp32")
    (given,) = held(compiled, "bridge/encoder_norm/dropout.shared")
    assert (given.amount, given.times, given.formula) == (4 * BATCH * SOURCE * D, 1, "4*B*Ss*D")
    sums = [one for one in compiled.accounts if one.account == "bridge/encoder_norm/dropout.shared.gradient.sum"]
    (traffic,) = (one for one in sums if one.resource.kind == "hbm")
    assert (traffic.times, traffic.amount) == (LAYERS - 1, 3 * given.amount)
    (biases,) = (
        one
        for one in compiled.accounts
        if one.account == "encoder.first/source_attention/relative.shared.gradient.sum" and one.resource.kind == "hbm"
    )
    assert (biases.times, biases.amount) == (LAYERS - 1, 3 * 4 * HEADS * SOURCE * SOURCE)


def test_the_napkin_sees_the_tokens_of_each_side() -> None:
    """Weights of the encoder multiply tokens of the source, all others those of the sequence."""
    totals = t5().totals
    encoder = LAYERS * (4 * D * INNER + 2 * D * FF + 2 * D) + BUCKETS * HEADS
    rest = totals["parameters"] - encoder
    assert totals["napkin.flops.token"] == pytest.approx(6 * (rest + encoder * SOURCE / TARGET))
    assert totals["napkin.flops.run"] == pytest.approx(1900 * totals["napkin.flops.token"])


def test_sound_is_two_convolutions_and_positions_that_are_not_trained() -> None:
    """Radford et al. 2022, section 2.2: filters of three frames, the second every other one; sines are no weights."""
    totals, trained = whisper().totals, whisper().totals["parameters.trainable"]
    assert totals["parameters"] - trained == HEARD * STREAM
    plan = whisper().plan
    assert (plan.run.source_len, plan.run.seq_len) == (HEARD, TARGET)
    frames = 2 * HEARD
    forward = 2 * BATCH * 3 * (frames * BANDS * STREAM + HEARD * STREAM * STREAM)
    stem = [one for one in whisper().accounts if one.cause.unit == "input" and one.resource.kind == "matmul"]
    assert sum(one.times * one.amount for one in stem if one.when == "forward") == forward


def layouts(model: plans.Mapped, **run: Any) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Some layouts of a plan on four devices, as a search prices them, and as they compile."""
    devices = {"cluster": {"base": "h100-400g", "devices": 4}, "parallelism": {"zero": 3}}
    document = {
        **plans.ONE_DEVICE,
        "model": model,
        **devices,
        "kernels": EAGER,
        "run": {**RUN, "global_batch": 12, **run},
    }
    plan = load_plan(json.dumps(document, indent=1))
    over = {"parallelism.zero": [1, 3], "parallelism.replicate": [1], "parallelism.offload": [None]}
    space = space_of(plan, {**over, "recompute": ["full"], "run.micro_batch": [3]})
    keys = ("time.step", "memory.peak")
    for piece in pieces(space):
        for block in price_piece(piece, keys):
            compiled = compile_totals(with_layout(plan, block.layout(0)))
            yield {key: float(block.totals[key][0]) for key in keys}, {key: float(compiled[key]) for key in keys}


def test_layouts_are_priced_as_they_compile() -> None:
    """A search leaves both sides whole, and finds the bytes and seconds of the compiler."""
    found = list(layouts(plans.T5))
    assert len(found) > 1
    for priced, compiled in found:
        assert priced == pytest.approx(compiled)


T5_LAYERS = plans.T5["layers"]
TWO = {"cluster": {"base": "h100-400g", "devices": 2}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no source": ({"run": {**RUN, "source_len": None}}, "does not say how long its source is"),
    "no encoder": ({"model": plans.LLAMA}, "`run.source_len` is of a model with an encoder"),
    "no decoder": ({"model": {**plans.T5, "layers": T5_LAYERS[:1]}}, "no group attends to what it gives"),
    "nothing to attend to": ({"model": {**plans.T5, "layers": T5_LAYERS[1:]}}, "and there is none"),
    "order": ({"model": {**plans.T5, "layers": T5_LAYERS[::-1]}}, "stands after groups of the decoder"),
    "mask": (
        {
            "model": {
                **plans.T5,
                "layers": [
                    plans.layer({"layers": T5_LAYERS[:1]}, attention={"bidirectional": False})["layers"][0],
                    T5_LAYERS[1],
                ],
            }
        },
        "its tokens do not see those after them",
    ),
    "kernel": ({"kernels": {"attention": "flash"}}, "flash attention adds no biases to scores"),
    "window": ({"model": plans.layer(plans.T5, attention={"window": 8})}, "`window` is not modelled"),
    "experts": (
        {"model": plans.layer(plans.T5, mlp={"kind": "experts", "experts": 4, "top_k": 1, "activation": "silu"})},
        "an mlp of experts is not modelled",
    ),
    "tensor": (
        {**TWO, "parallelism": {"data": 1, "tensor": 2}},
        "tensor = 2 is not modelled of a model with an encoder",
    ),
    "pipeline": ({**TWO, "parallelism": {"data": 1, "pipeline": 2}}, "pipeline = 2 is not modelled"),
    "context": ({**TWO, "parallelism": {"data": 1, "context": 2}}, "context = 2 is not modelled"),
    "layers": ({"recompute": {"layers": 1}}, "the first of each side makes the biases of the others"),
    "modules": ({"stack": "deepspeed-zero3-transformers-2026"}, "not modelled of a model with an encoder"),
    "activations": ({"parallelism": {"offload": ["activations"]}}, "offload of activations of a model with an encoder"),
    "positions": (
        {"model": {**plans.T5, "embedding": {"tied": True, "learned_positions": 64}}},
        "learned positions of a decoder whose encoder reads tokens",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_modelled_of_two_sides_is_refused_in_its_place(name: str) -> None:
    """One sentence each, at the field that says it."""
    parts, said = REFUSED[name]
    parts = {
        key: {k: v for k, v in part.items() if v is not None} if isinstance(part, dict) else part
        for key, part in parts.items()
    }
    with pytest.raises(ledger.SpecError) as caught:
        t5(**parts)
    assert any(said in problem.message for problem in caught.value.problems)


def test_lengths_of_sound_are_not_stated_otherwise() -> None:
    """Frames say how many tokens they become; a service of such a model has a cache that is not modelled."""
    with pytest.raises(ledger.SpecError, match="source_len = 54, but 106 frames are 53 tokens"):
        whisper(run={**RUN, "source_len": 54})
    serve = {"prompt": "8 tokens", "output": "8 tokens", "concurrency": 1}
    document = {name: part for name, part in plans.ONE_DEVICE.items() if name not in ("run", "optimizer", "recompute")}
    with pytest.raises(ledger.SpecError, match="keys and values of its source beside those of its answer"):
        plans.compiled_text(json.dumps({**document, "model": plans.WHISPER, "serve": serve}))


def test_the_library_has_both() -> None:
    """Models on file keep what their publications count, and the plan of T5 compiles."""
    compiled = compile_plan(load_plan("t5-11b"))
    assert compiled.totals["parameters"] == pytest.approx(11e9, rel=0.03)
    assert compiled.plan.run.token_count == 10**6 * 2048 * 114
