"""The two sides of a model that has an encoder before its decoder: what layers of each see beside their own stream."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.model.tensors import Tensor

SOURCE, SOURCE_LENGTH, CROSS = "source", "source_seq", "cross_attention"


@dataclass(frozen=True)
class Side:
    """The sequence that is as long as the table of symbols says of `length`, and what earlier units give to its layers.

    `encoded`: what the encoder gave; `bias`: what the first layer of this side made for the scores of all, None there.
    `attention`: the component that attention is written as: to tokens of its own, or to those of the encoder.
    """

    length: str = "seq"
    encoded: Tensor | None = None
    bias: Tensor | None = None
    attention: str = "attention"

    @property
    def is_source(self) -> bool:
        """Whether it is the encoder's."""
        return self.length == SOURCE_LENGTH

    def named(self, component: str) -> str:
        """A component or a table that both sides have, told from that of the other one."""
        return f"{SOURCE}_{component}" if self.is_source else component
