"""What a model of images reads: pixels, cut into patches that its layers see as tokens, or as its stem reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ledger.spec.parts import PartHeader
from ledger.spec.values import Size

PIXELS = Size(most=1_000_000)


@dataclass(frozen=True)
class Image:
    """An image cut into square patches, each a token of its sequence, behind a class token that no patch makes.

    Without patches, as a stem reads it, an image is one token.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What a model of images reads in place of tokens: `{height: 224, width: 224, channels: 3, patch: 16}`. "
        "Each patch is a token of the sequence, after a learned class token; the head reads the class token. A model "
        "with a `stem` has no patches: the stem reads pixels, and an image counts as one token.",
    )

    height: Annotated[int, PIXELS, "Pixels from top to bottom."]
    width: Annotated[int, PIXELS, "Pixels from left to right."]
    channels: Annotated[int, Size(most=100_000), "Numbers of a pixel: 3 of a colour image."]
    patch: Annotated[int, PIXELS, "Pixels along an edge of a patch; none where a stem reads the image."] = 0

    @property
    def patches(self) -> int:
        """Patches of an image, those that it holds whole."""
        return (self.height // self.patch) * (self.width // self.patch) if self.patch else 0

    @property
    def tokens(self) -> int:
        """Tokens of the sequence that an image becomes: its patches and the class token, or one."""
        return self.patches + 1
