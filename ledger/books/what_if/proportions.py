"""A model that grows in proportion: one of its sizes is looked for, and others follow it."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from ledger.books.what_if.sizes import divisors
from ledger.books.what_if.sought import Settings, Unknown, key_fault
from ledger.books.what_if.trial import with_settings
from ledger.spec.near import nearest
from ledger.spec.paths import greatest, key_of
from ledger.spec.plan import Plan

WIDTHS, SHAPE = "widths", "shape"
KEPT: Mapping[str, str] = {
    WIDTHS: "d_model, heads and d_ff keep their proportions, and the layers their number",
    SHAPE: "d_model, heads, d_ff and the number of layers keep their proportions",
}


def proportional_sizes(plan: Plan, keep: str) -> Mapping[str, int]:
    """The sizes that stay in proportion, with their values; of one head, of the vocabulary and of latents nothing does.

    Key and value heads grow where there are as many as query heads, and stay where queries share them (as from Llama 3
    8B to 405B: Grattafiori et al. 2024, arXiv 2407.21783, table 3).
    """
    found = {"model.d_model": plan.model.d_model}
    for group in plan.model.groups:
        at, attention, shared = f"model.layers.{group.name}", group.attention, group.mlp.shared
        found[f"{at}.attention.heads"] = attention.heads
        shared_heads = f"{at}.attention.kv_heads"
        if shared_heads in plan.origins and attention.kv_heads == attention.heads:
            found[shared_heads] = attention.kv_heads
        found |= {f"{at}.mlp.d_ff": group.mlp.d_ff} if group.mlp.d_ff else {}
        found |= {f"{at}.mlp.shared.d_ff": shared.d_ff} if shared else {}
        found |= {f"{at}.repeat": group.repeat} if keep == SHAPE else {}
    return found


def proportional(plan: Plan, path: str, keep: str) -> Unknown:
    """One size of a model with those in proportion to it; all are whole, and rules of the spec refuse none."""
    sizes = proportional_sizes(plan, keep) if plan.model.groups else {}
    if path not in sizes:
        raise key_fault(path, f"`{path}` is no size that `--keep {keep}` keeps in proportion", nearest(path, [*sizes]))
    parts = gcd(*sizes.values())
    unit = sizes[path] // parts  # of the size at `path` in the smallest model of this shape

    def settings(value: Any) -> Settings:
        return {one: given * value // sizes[path] for one, given in sizes.items()}

    fine = (step for step in divisors(parts) if not with_settings(plan, settings((parts + step) * unit)).problems)
    step = next(fine, parts) * unit
    most = min(greatest(one) * sizes[path] / given for one, given in sizes.items())
    cap = f"a spec states no larger sizes of this shape than with {key_of(path)} = {most:.0f}"
    return Unknown(path, sizes[path], settings, f"multiples of {step}: {KEPT[keep]}", step=step, greatest=most, cap=cap)
