"""What layers with experts of Megatron-Core keep beside the ledger's: lists of places, and what corrects choices."""

from __future__ import annotations

from ledger.lab.judges.role_instant import RoleInstant
from ledger.lab.verification.causes import INDEX, WIDE


def sorted_places(at: RoleInstant) -> int:
    """The places of each expert's rows, which the dispatcher keeps, and those from which they are put back.

    `sort_input_by_local_experts` and `restore_output_by_local_experts` of
    megatron/core/transformer/moe/token_dispatcher.py, which share a storage where a device has one expert, or all of
    them; where it has several, also how many rows of each came (`num_global_tokens_per_local_expert`).
    """
    layout, found = at.plan.parallelism, 0
    for group, count in zip(at.plan.model.groups, at.role.layers, strict=True):
        lists = 1 if group.mlp.experts == layout.expert else 3 if layout.expert * layout.tensor > 1 else 2
        found += INDEX * group.mlp.experts * layout.tensor * lists * count
    return found


def expert_choice(at: RoleInstant) -> int:
    """What corrects which experts are chosen, and how many tokens chose each: two fp32 an expert (moe/router.py)."""
    groups = zip(at.plan.model.groups, at.role.layers, strict=True)
    corrected = (count * group.mlp.experts for group, count in groups if group.mlp.router.scores == "sigmoid")
    return 2 * WIDE * sum(corrected)
