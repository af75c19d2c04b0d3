"""The ranks of a step as meshes and groups: which rank 0 shares weights with, and what else with whom.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ledger.lab.observed.ranks import ShardedRank

AXES = ("replicate", "data", "tensor")


@dataclass(frozen=True)
class RankMesh:
    """`whole` is the mesh of all ranks, `experts` that of the ranks among which experts are dealt.

    `within` are the groups of ranks that share `data` in another way, by axis.
    """

    whole: DeviceMesh
    experts: DeviceMesh | None
    within: Mapping[str, Any]
    replicated: bool

    @property
    def shards(self) -> DeviceMesh:
        """The ranks over which FSDP2 shards."""
        return self.whole["replicate", "data"] if self.replicated else self.whole["data"]

    @property
    def copies(self) -> DeviceMesh:
        """Those over which it shards the experts that this rank has."""
        mesh = self.experts if self.experts is not None else self.whole
        return mesh["replicate", "expert_data"] if self.replicated else mesh["expert_data"]

    def axes(self) -> dict[str, str]:
        """The axis of each process group, by the group's name."""
        groups = [(axis, self.whole[axis].get_group()) for axis in AXES]
        if self.experts is not None:
            groups += [(axis, self.experts[axis].get_group()) for axis in ("replicate", "expert_data")]
        return {group.group_name: axis for axis, group in (*groups, *self.within.items())}


def rank_mesh(rank: ShardedRank, device: str) -> RankMesh:
    """The meshes and groups of rank 0. Outside the fake mode, since a mesh reads its own tensors."""
    whole = init_device_mesh(device, tuple(getattr(rank, axis) for axis in AXES), mesh_dim_names=AXES)
    experts, degree = None, rank.expert
    if degree > 1:
        sizes = (rank.replicate, rank.data // degree, degree * rank.tensor)
        experts = init_device_mesh(device, sizes, mesh_dim_names=("replicate", "expert_data", "expert_tensor"))
    within = {
        axis: distributed.new_group([member * rank.tensor for member in range(ranks)])
        for axis, ranks in (("expert", degree), ("context", rank.context))
        if ranks > 1
    }
    return RankMesh(whole, experts, within, rank.replicate > 1)
