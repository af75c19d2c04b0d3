"""Plans of models that read images: their sequences, counts, memory, and what they have no total of."""

from __future__ import annotations

import json
import math

import pytest

import ledger
from ledger.books.compiled import Compiled
from tests.model import plans

HEIGHT, WIDTH, CHANNELS, PATCH, CLASSES, D, FF, LAYERS = 20, 45, 3, 5, 11, 120, 448, 2  # of plans.VIT
PATCHES = (HEIGHT // PATCH) * (WIDTH // PATCH)
TOKENS = PATCHES + 1
BATCH = 3


def vit(**parts: object) -> Compiled:
    """The small ViT on one device, three images at once."""
    run = {"images": "3000 images", "micro_batch": BATCH, "global_batch": BATCH}
    return plans.compiled(**({"model": plans.VIT, "run": run} | parts))


def test_a_sequence_is_the_patches_of_an_image_behind_a_class_token() -> None:
    """`seq_len` and the tokens of the run follow from pixels and images; a step trains a batch of images."""
    run = vit().plan.run
    assert (run.seq_len, run.tokens) == (TOKENS, 3000 * TOKENS)
    totals = vit().totals
    assert totals["images_per_second"] == pytest.approx(BATCH / totals["time.step"])
    assert totals["tokens_per_second"] == pytest.approx(TOKENS * totals["images_per_second"])
    assert totals["time.run"] == pytest.approx(1000 * totals["time.step"])


def test_parameters_are_those_of_patches_positions_layers_and_classes() -> None:
    """Dosovitskiy et al. 2021, equations 1 to 4: each matrix by its sides, with biases and norms."""
    stem = D * (CHANNELS * PATCH**2 + 1) + D + TOKENS * D
    layer = 4 * (D * D + D) + 2 * D * FF + FF + D + 2 * 2 * D
    assert vit().totals["parameters"] == stem + LAYERS * layer + 2 * D + CLASSES * (D + 1)


def test_flops_are_products_of_patches_tokens_and_classes() -> None:
    """2 FLOPs a point: the filter once a patch, layers once a token and scores of all pairs, the head once an image."""
    stem = 2 * PATCHES * D * CHANNELS * PATCH**2
    layer = 2 * TOKENS * (4 * D * D + 2 * D * FF) + 2 * 2 * TOKENS**2 * D
    head = 2 * D * CLASSES
    totals = vit().totals
    assert totals["flops.counter.forward"] == BATCH * (stem + LAYERS * layer + head)
    # no gradient flows into pixels: the filter's backward is one product, every other two
    assert totals["flops.model"] == BATCH * (2 * stem + 3 * (LAYERS * layer + head))


def test_pixels_of_a_batch_are_held_in_fp32_all_the_time() -> None:
    """As data loaders give them, beside what is saved of them in the format of the products."""
    (pixels,) = (one for one in vit().accounts if one.account == "embedding/pixels.index")
    assert (pixels.amount, pixels.formula) == (4 * BATCH * CHANNELS * HEIGHT * WIDTH, "4*B*Yi*Xi*Ci")


@pytest.mark.parametrize("model", [plans.VIT, plans.BERT], ids=["vit", "bert"])
def test_encoders_have_no_cache_and_decode_nothing(model: plans.Mapped) -> None:
    """What sees a sequence in both directions makes no token after it: such totals are absent, and say why."""
    run = {"micro_batch": BATCH, "global_batch": BATCH} | ({} if "image" in model else {"seq_len": TOKENS})
    compiled = plans.compiled(model=model, run=run)
    assert not {"kv_cache", "prefill.time", "decode.time_per_token"} & compiled.totals.keys()
    assert math.isfinite(compiled.totals["time.step"])
    serve = {"prompt": "8 tokens", "output": "8 tokens", "concurrency": 1}
    document = {name: part for name, part in plans.ONE_DEVICE.items() if name not in ("run", "optimizer", "recompute")}
    with pytest.raises(ledger.SpecError, match="answers no token after token"):
        plans.compiled_text(json.dumps({**document, "model": model, "serve": serve}))


IMAGE, ONE = plans.VIT["image"], {"micro_batch": 1, "global_batch": 1}
REFUSED = {
    "classes": ({"model": {**plans.VIT, "head": {"bias": True}}}, "has no `head.classes`"),
    "text": ({"model": {**plans.VIT, "vocab": 100}}, "`vocab` is of a model of text"),
    "patches": ({"model": {**plans.VIT, "image": {**IMAGE, "width": 44}}}, "do not fill a width of 44"),
    "mask": ({"model": plans.layer(plans.VIT, attention={"bidirectional": False})}, "it sees no patch"),
    "length": ({"run": {"seq_len": 38, **ONE}}, "seq_len = 38, but 36 patches"),
    "positions": ({"model": {**plans.VIT, "embedding": {"learned_positions": 40}}}, "40 learned positions"),
    "both": ({"run": {"images": "3 images", "tokens": "9 tokens", **ONE}}, "both `tokens`"),
    "tensor": (
        {"parallelism": {"data": 1, "tensor": 2}, "cluster": {"base": "h100-400g", "devices": 2}},
        "tensor = 2 is not modelled of a model of images",
    ),
    "loss": ({"kernels": {"loss": "chunked"}}, "an image has one row of scores"),
    "tokens": (
        {"model": plans.BERT, "run": {"images": "3 images", "seq_len": 8, **ONE}},
        "`run.images` is of a model of images",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_model_of_images_has_is_refused_in_its_words(name: str) -> None:
    """One sentence each, at the field that says it."""
    parts, said = REFUSED[name]
    with pytest.raises(ledger.SpecError, match=said.replace("(", r"\(")):
        vit(**parts)


def test_lengths_of_images_are_no_unknowns() -> None:
    """`solve` says what a length follows from, and takes the images of a run."""
    path = "specs/vit-l.yaml"
    with pytest.raises(ledger.SpecError, match="follows from the image: 197 tokens"):
        ledger.solve(path, "run.seq_len", ["fits"])
    with pytest.raises(ledger.SpecError, match="states its length in images"):
        ledger.solve(path, "run.tokens", ["fits"])
    assert ledger.solve(path, "run.images", ["time.run <= 10 h"]).value > 0
