"""Recurrences in kernels made for them: FLOPs, saved bytes and states, each counted by hand from the sizes."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest

from ledger.books.compiled import Compiled
from ledger.spec.load import load_model
from ledger.spec.problems import SpecError
from tests.model import plans

BATCH, TOKENS, WIDTH, LAYERS = 3, 37, 24, 2  # of the small plan
HEADS, EACH, STATE, GROUPS, CHUNK, TAPS = 6, 8, 5, 2, 11, 4  # of the small Mamba-2
INNER = HEADS * EACH
CHANNELS = INNER + 2 * GROUPS * STATE
PROJECTED = INNER + CHANNELS + HEADS
VOCAB = 211


def _mamba(**parts: object) -> Compiled:
    return plans.compiled(**{"model": plans.MAMBA2, "precision": "bf16-true", **parts})


def _halved(size: int) -> Fraction:
    """The share of a square on and below its diagonal."""
    return Fraction(size + 1, 2 * size)


def test_a_layer_has_a_mixer_and_one_norm() -> None:
    """Projections, filters and biases of channels, three numbers of each head, a norm of the result, one before."""
    mixer = WIDTH * PROJECTED + CHANNELS * (TAPS + 1) + 3 * HEADS + INNER + INNER * WIDTH
    assert _mamba().totals["parameters"] == LAYERS * (mixer + WIDTH) + VOCAB * WIDTH + WIDTH


def test_flops_of_a_scan_are_products_within_chunks_and_with_states() -> None:
    """Scores of each group; what tokens read of their chunk; states of chunks made, and read: masks taken off."""
    chunks = ceil(TOKENS / CHUNK)
    pairs = BATCH * chunks * CHUNK**2 * _halved(CHUNK)
    scan = 2 * pairs * (GROUPS * STATE + INNER) + 4 * BATCH * chunks * CHUNK * INNER * STATE
    convolution = 2 * BATCH * TOKENS * CHANNELS * TAPS
    projections = 2 * BATCH * TOKENS * WIDTH * (PROJECTED + INNER)
    head = 2 * BATCH * TOKENS * WIDTH * VOCAB
    totals = _mamba().totals
    assert totals["flops.forward"] == LAYERS * (scan + convolution + projections) + head
    assert totals["flops.backward"] == 2 * totals["flops.forward"]
    rebuilt = convolution + 2 * pairs * GROUPS * STATE + 2 * BATCH * chunks * CHUNK * INNER * STATE
    assert totals["flops.recompute"] == LAYERS * rebuilt


def test_a_fused_scan_saves_its_projection_and_what_it_gives() -> None:
    """Beside the norm: the joint projection, the result before the gate, statistics, and the projection's input."""
    rows = BATCH * TOKENS
    norm = rows * (4 + WIDTH * 2) + rows * WIDTH * 2  # statistic, what is normed, and what is multiplied
    mixer = rows * (2 * PROJECTED + 2 * INNER + 4 * GROUPS + 2 * INNER)
    assert _mamba().totals["saved.per_layer.decoder"] == norm + mixer


def test_states_are_in_fp32_whatever_the_model_is_in() -> None:
    """A matrix of each head, and the tokens that the convolution sees, in the dtype that they are multiplied in."""
    state, window = HEADS * EACH * STATE, CHANNELS * TAPS
    assert _mamba().totals["kv_cache"] == LAYERS * BATCH * (4 * state + 2 * window)


def test_a_scan_by_the_delta_rule_reads_and_corrects_states() -> None:
    """Of each chunk three products of keys with keys or scores, two with values; of states, one made and two read."""
    chunks, chunk, heads, each, size, groups = 1, 64, 4, 13, 7, 2
    model = {**plans.GATED_DELTA, "order": ["linear"], "layers": plans.GATED_DELTA["layers"][:1]}
    pairs = BATCH * chunks * heads * chunk**2 * _halved(chunk)
    scan = 2 * pairs * (3 * size + 2 * each) + 6 * BATCH * chunks * chunk * heads * each * size
    channels = heads * each + 2 * groups * size
    width, d_ff, rows = model["d_model"], 272, BATCH * TOKENS
    projections = 2 * rows * width * (channels + heads * each + 2 * heads + heads * each + 3 * d_ff)
    convolution = 2 * rows * channels * 4
    totals = plans.compiled(model=model, precision="bf16-true").totals
    assert totals["flops.forward"] == scan + projections + convolution + 2 * rows * width * VOCAB
    assert totals["kv_cache"] == BATCH * (4 * heads * each * size + 2 * channels * 4)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"parallelism": {"tensor": 2}, "cluster": 2}, "tensor = 2 cuts the scan of `decoder`"),
        ({"parallelism": {"context": 2}, "cluster": 2}, "context = 2 cuts the scan of `decoder`"),
        ({"run": {"documents": {"length": "7 tokens"}}}, "packed documents with the scan of `decoder`"),
        ({"attention": {"state": {"groups": 4}}}, "heads = 6 of `decoder` is no multiple of state.groups = 4"),
        ({"attention": {"window": 8}}, "`window` is no size of mamba2 attention"),
        ({"mlp": {"d_ff": 8}}, "`d_ff` of no feed-forward part"),
        ({"norms": "sandwich"}, "`decoder` has no feed-forward part, with norms sandwich"),
    ],
)
def test_what_a_scan_cannot_do_is_refused(parts: plans.Mapped, said: str) -> None:
    """Cuts of a scan that nobody puts together here, documents, heads that do not share, sizes of attention."""
    group = dict(plans.MAMBA2["layers"][0])
    mixer = parts.get("attention", {})
    state = {**group["attention"]["state"], **mixer.get("state", {})}
    group["attention"] = {**group["attention"], **mixer, "state": state}
    group["mlp"] = {**group["mlp"], **parts.get("mlp", {})}
    group["norms"] = parts.get("norms", "pre")
    devices = parts.get("cluster", 1)
    cluster = {"base": "h100-400g", "devices": devices, "devices_per_node": devices}
    run = {"seq_len": 38, "micro_batch": 2, "global_batch": 2, **parts.get("run", {})}
    others = {"cluster": cluster, "parallelism": {"data": 1, **parts.get("parallelism", {})}, "run": run}
    with pytest.raises(SpecError) as refused:
        plans.compiled(model={**plans.MAMBA2, "layers": [group]}, **others)
    assert any(problem.message.startswith(said) for problem in refused.value.problems), refused.value


def test_models_of_the_library_are_of_the_kinds_that_they_say() -> None:
    """Mamba-2 2.7B has no attention and no feed-forward part; three of four layers of Qwen3-Next have no attention."""
    mamba, qwen = load_model("mamba2-2.7b"), load_model("qwen3-next-80b-a3b")
    assert [(group.repeat, group.attention.kind, group.mlp.kind) for group in mamba.groups] == [(64, "mamba2", "none")]
    assert [group.attention.recurrent for group in qwen.layers] == [True, True, True, False] * 12
