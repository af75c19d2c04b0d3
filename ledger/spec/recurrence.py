"""The state that a recurrence along the sequence keeps of all tokens before, and what it reads, as a spec states it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ledger.spec.parts import PartHeader
from ledger.spec.values import Size


@dataclass(frozen=True)
class State:
    """A matrix for each head, of `head_dim` by `size` elements in fp32, and the convolution before it."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Of a recurrence (`mamba2`, `gated_delta`): the state of each head, in fp32 whatever weights are in."
    )

    size: Annotated[int, Size(most=65_536), "Width of a head's state: of B and C, or of keys and queries."]
    groups: Annotated[int, Size(most=100_000), "Groups of heads that share B and C, or keys and queries."] = 1
    chunk: Annotated[int, Size(most=1_000_000), "Tokens of a chunk; between chunks only states are handed on."] = 256
    convolution: Annotated[int, Size(most=1000), "Tokens that the causal convolution before the scan sees."] = 4
    convolution_bias: Annotated[bool, "Whether that convolution has a bias."] = False
