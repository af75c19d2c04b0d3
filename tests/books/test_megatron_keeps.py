"""What Megatron-Core and Transformer Engine keep, add and exchange: each mechanism by what it alone changes."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import pytest
import yaml

from ledger.books import prices
from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import compile_roles
from ledger.books.entries import Lifetime
from ledger.books.memory.steps import outlives_unit
from ledger.books.results import KernelTime
from ledger.model.schedule import roles
from ledger.spec.kernel_classes import kernel_class
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from tests.model import plans

B, S, D, V, TP, F = 3, 39, 102, 213, 3, 273
HEADS, KV, WIDTH = 6, 3, 24
LAYERS = 2
MODEL: plans.Mapped = {
    **plans.layer(plans.LLAMA, attention={"heads": HEADS, "kv_heads": KV, "head_dim": WIDTH}, mlp={"d_ff": F}),
    "vocab": V,
}
KERNELS = {"norm": "fused", "activation": "fused_gated", "rotary": "fused", "loss": "fused"}
STREAM = 2 * B * S * D  # bytes of the residual stream in bf16


def compiled(stack: Mapping[str, Any] | None = None, **parts: Any) -> Compiled:
    """A small Llama over three tensor-parallel devices as Megatron splits it, two micro-batches a step."""
    base: plans.Mapped = {
        "model": MODEL,
        "cluster": {"base": "h100-400g", "devices": TP, "devices_per_node": TP},
        "parallelism": {"tensor": TP, "sequence": "regather"},
        "precision": "bf16-fp32-gradients",
        "stack": {"base": "megatron-lm-2022", **(stack or {})},
        "kernels": KERNELS,
        "run": {"seq_len": S, "micro_batch": B, "global_batch": 2 * B},
    }
    return plans.compiled(**{**base, **parts})


def kernels(one: Compiled, ending: str) -> dict[str, KernelTime]:
    """Kernels and transfers of the step whose account ends so."""
    (role,) = one.roles
    return {row.account: row for row in role.kernels if row.account.endswith(ending)}


def stocks(one: Compiled, ending: str) -> dict[str, int]:
    """Bytes that are held under accounts that end so."""
    held = (account for account in one.accounts if account.unit == "B" and ".." in account.when)
    return {row.account: row.times * int(row.amount) for row in held if row.account.endswith(ending)}


# --- accumulation in the product ----------------------------------------------------------------


def test_products_that_add_leave_only_what_no_product_gives_to_be_added() -> None:
    """A kernel still adds gradients of norms and of the lookup, in bf16 to fp32: ten bytes a value."""
    plain, fused = (kernels(compiled({"accumulation": way}), "weights/accumulate") for way in ("add", "fused"))
    assert plain.keys() >= fused.keys()
    assert fused["decoder/weights/accumulate"].bytes == 10 * 2 * D
    assert plain["decoder/weights/accumulate"].bytes > 100 * fused["decoder/weights/accumulate"].bytes


def test_a_product_that_adds_moves_the_sum_and_takes_longer() -> None:
    """It reads and writes four bytes a value where it wrote two, and half of their time is its own."""
    plain, fused = (kernels(compiled({"accumulation": way}), "weight_gradient") for way in ("add", "fused"))
    assert plain.keys() == fused.keys() != set()
    bandwidth = load_accelerator("h100-sxm").bandwidth
    for name, row in fused.items():
        beside = row.bytes - plain[name].bytes
        assert beside > 0, name
        taken = plain[name].seconds + prices.ADDING * beside / bandwidth
        assert row.seconds == pytest.approx(max(taken, row.roofline)), name


def test_no_gradient_of_a_product_is_allocated() -> None:
    """What backward allocates beside its sums is smaller by the largest gradient of a layer's weights."""
    plain, fused = (compiled({"accumulation": way}) for way in ("add", "fused"))
    assert fused.totals["memory.peak"] < plain.totals["memory.peak"]
    assert fused.totals["memory.static.gradients"] == plain.totals["memory.static.gradients"]


def test_autograd_is_given_one_tensor_of_each_shape() -> None:
    """Modules of a layer: qkv, out, gate with up, down; and the head. None twice, however many layers there are."""
    one = compiled({"accumulation": "fused", "dummy_gradients": True})
    heads = HEADS * WIDTH + 2 * KV * WIDTH
    shapes = [D * heads, HEADS * WIDTH * D, D * 2 * F, F * D, D * V]
    assert sorted(stocks(one, ".dummy").values()) == sorted(2 * size // TP for size in shapes)


def test_shapes_are_ordered() -> None:
    """A matrix and its transpose are two shapes (get_dummy_wgrad is keyed by the list of sizes)."""
    model = plans.layer(MODEL, mlp={"kind": "plain", "activation": "gelu"})
    plain = {**KERNELS, "activation": "fused"}
    one = compiled({"accumulation": "fused", "dummy_gradients": True}, model=model, kernels=plain)
    assert list(stocks(one, ".dummy").values()).count(2 * D * F // TP) == 2


# --- losses, latents, chunks ---------------------------------------------------------------------


ROTATIONS = ("joined", "in_place")


def saved(one: Compiled) -> int:
    """Bytes that a layer saves on a device."""
    book = compile_roles(one.plan, roles(one.plan))[0]
    (layer,) = (unit for unit in book.program.units if unit.name == "decoder")
    return int(sum(book.value(tensor.bytes()) for tensor in layer.saving.saved if not outlives_unit(tensor)))


def test_latent_heads_rotated_in_place_keep_no_parts_of_keys_beside_them() -> None:
    """Values alone are saved where they were beside parts of keys, and the latent without what is rotated."""
    alone: plans.Mapped = {"model": plans.LATENT, "cluster": {"base": "h100-400g", "devices": 1, "devices_per_node": 1}}
    run = {"seq_len": S, "micro_batch": B, "global_batch": B}
    kernels = {**KERNELS, "attention": "cudnn"}  # needs no values as wide as queries
    parts = {**alone, "parallelism": {}, "run": run, "kernels": kernels}
    joined, apart = (saved(compiled({"latent_rotary": way}, **parts)) for way in ROTATIONS)
    attention = plans.LATENT["layers"][0]["attention"]
    heads, straight, turned = (attention[name] for name in ("heads", "nope_head_dim", "rope_head_dim"))
    assert joined - apart == 2 * B * S * (heads * straight + turned)


def test_other_chunks_wait_while_the_ends_of_a_model_run() -> None:
    """Of five passes of two layers in flight, one is the embedding's own: the others wait, as near the first layer."""
    one = compiled(
        model=plans.layer(MODEL, repeat=8),
        cluster={"base": "h100-400g", "devices": 2, "devices_per_node": 2},
        parallelism={"pipeline": 2, "interleave": 2},
        run={"seq_len": S, "micro_batch": 1, "global_batch": 8},
    )
    book = compile_roles(one.plan, roles(one.plan))[0]

    def waiting(moment: str) -> int:
        place = book.timeline.names.index(moment)
        found = [entry for entry in book.entries if entry.cause.name == "mlp_norm/norm" and entry.cause.state != "now"]
        mine = [(entry.when, entry.times) for entry in found]
        alive = [times for when, times in mine if isinstance(when, Lifetime) and when.first <= place <= when.last]
        return int(sum(book.value(times) for times in alive))

    assert [waiting(name) for name in ("forward/input", "backward/decoder/end", "backward/input")] == [8, 8, 8]


def measured_cost(name: str) -> float:
    """Median over shapes of seconds beyond the mean of the other two layouts, over those of the further bytes."""
    file = default_library().folder("evidence") / f"{name}-matmul.yaml"
    document, bandwidth = yaml.safe_load(file.read_text("utf-8")), load_accelerator(name).bandwidth
    seconds: dict[tuple[int, ...], dict[str, tuple[float, int]]] = {}
    for series in (each for each in document["series"] if each["what"] == "matmul.bf16"):
        for row in series["rows"].splitlines():
            sizes = dict(zip(series["columns"], map(float, row.split()), strict=False))
            m, n, k, rate = (sizes[size] for size in ("m", "n", "k", "value"))
            shape = tuple(sorted((int(m), int(n), int(k))))
            seconds.setdefault(shape, {})[series["layout"]] = (2 * m * n * k / (rate * 1e12), int(m * n))
    shares = [
        (one["weight_gradient"][0] - (one["forward"][0] + one["input_gradient"][0]) / 2)
        / (6 * one["weight_gradient"][1] / bandwidth)
        for one in seconds.values()
        if len(one) == 3
    ]
    assert len(shares) > 50
    return median(shares)


def test_what_a_sum_costs_is_what_was_measured() -> None:
    """Between the two devices whose products were measured both ways, which are not far apart."""
    most, least = measured_cost("a100-pcie-80gb"), measured_cost("b200-simumax")
    assert least < prices.ADDING < most < least + 0.2


# --- bursts -------------------------------------------------------------------------------------


def test_a_burst_is_charged_at_the_clock_of_a_run() -> None:
    """Attention, measured in bursts, takes longer by the ratio that the device's matmuls have."""
    device = load_accelerator("h100-sxm")
    rates = {one.regime: one.parameters["e"] for one in device.curves[kernel_class("matmul.bf16")]}
    assert prices.sustained_share(device) == rates["sustained"] / rates["burst"] < 1
    kind = kernel_class("attention.flash.forward")
    curve = prices.curve(device, kind, head_dim=128)
    assert curve is not None
    assert curve.regime == "burst"
    flops, seq = 4.0 * 8192 * 8192 * 4096, 8192
    row = prices.kernel(device, prices.KernelWork(kind, flops, 1.0, "bf16", m=seq, k=128))
    found = curve.parameters
    burst = found["t0"] + flops * (1 + found["s0"] / seq) / (found["e"] * device.peak["bf16"])
    assert row.seconds == pytest.approx(burst / prices.sustained_share(device))


def test_a_device_without_both_is_charged_as_measured() -> None:
    """No ratio is known of the A100, whose matmuls were measured sustained alone."""
    assert prices.sustained_share(load_accelerator("a100-sxm-80gb")) == 1.0


# --- what lasts ---------------------------------------------------------------------------------


def test_the_head_gathers_into_a_buffer_that_lasts() -> None:
    """The whole sequence, from the first moment on; where the head runs, nothing more is allocated for it."""
    plain, kept = (compiled({"head_buffer": way}) for way in (False, True))
    assert list(stocks(kept, ".buffer").values()) == [STREAM]
    assert not stocks(plain, ".buffer")
    moments = [{moment.name: sum(moment.parts.values()) for moment in one.roles[0].moments} for one in (plain, kept)]
    grown = {name: moments[1][name] - moments[0][name] for name in moments[0]}
    assert grown["forward/output"] == 0
    assert grown["forward/decoder"] == STREAM


def test_the_workspace_of_matmuls_lasts() -> None:
    """As many bytes as the stack says, in every moment."""
    plain, kept = (compiled({"allocator": {"workspace": size}}) for size in ("0 B", "32 MiB"))
    for before, after in zip(plain.roles[0].moments, kept.roles[0].moments, strict=True):
        assert sum(after.parts.values()) - sum(before.parts.values()) == 32 * 2**20, after.name


# --- the loss of a split vocabulary -------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "sent"),
    [
        ("apart", {"all_reduce": (3, 12 * B * S)}),
        ("joined", {"all_reduce": (2, 12 * B * S)}),
        ("gathered", {"all_gather": (1, 12 * B * S * TP)}),
    ],
)
def test_the_loss_exchanges_three_numbers_a_token(way: str, sent: dict[str, tuple[int, int]]) -> None:
    """The largest value, the sum and the target in fp32: a reduction each, two, or one gather of all."""
    one = compiled({"loss_sums": way})
    rows = [row for row in one.roles[0].kernels if "cross_entropy" in row.account and row.payload]
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        count, size = found.get(row.kind.collective, (0, 0))  # type: ignore[union-attr]
        found[row.kind.collective] = (count + 1, size + int(row.payload))  # type: ignore[union-attr]
    assert found == sent


def test_a_gradient_apart_stands_beside_the_logits() -> None:
    """Four bytes a logit more at the loss, since the kernel no longer writes over the logits (two, bf16)."""
    within, apart = (compiled(kernels={**KERNELS, "loss": loss}) for loss in ("fused", "fused_apart"))
    sums = [{m.name: sum(m.parts.values()) for m in one.roles[0].moments} for one in (within, apart)]
    assert sums[1]["forward/loss"] - sums[0]["forward/loss"] == 4 * B * S * V // TP
    assert sums[1]["forward/decoder"] == sums[0]["forward/decoder"]


# --- the loss -----------------------------------------------------------------------------------


def test_logits_that_become_their_softmax_are_there_once() -> None:
    """Megatron-LM's loss works on the fp32 logits themselves, nanotron's on a copy: four bytes a logit more."""
    peaks = {
        loss: compiled(kernels={**KERNELS, "loss": loss}, model={**MODEL, "vocab": 90 * V}).totals["memory.peak"]
        for loss in ("softmax_in_place", "softmax_apart")
    }
    assert peaks["softmax_apart"] - peaks["softmax_in_place"] == 4 * B * S * 90 * V // TP
