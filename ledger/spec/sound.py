"""What an encoder of sound reads: frames of a spectrogram, which two convolutions make tokens of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ledger.spec.parts import PartHeader
from ledger.spec.values import Size

TAPS = 3  # frames that a convolution sees at once (Radford et al. 2022, section 2.2)
STRIDE = 2  # of the second one


@dataclass(frozen=True)
class Sound:
    """Frames of a spectrogram, which two convolutions of three frames make tokens of, one for every two frames."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What the encoder reads in place of tokens: `{bands: 128, frames: 3000}`. Two convolutions over three "
        "frames each, the second with stride 2, make a token of every two frames; fixed positions are added (Whisper).",
    )

    bands: Annotated[int, Size(most=1_000_000), "Bands of the mel spectrogram, numbers of a frame."]
    frames: Annotated[int, Size(most=100_000_000), "Frames of a sample: 3000 of 30 seconds, 10 ms each."]

    @property
    def tokens(self) -> int:
        """Tokens of the source that the frames become."""
        return (self.frames - 1) // STRIDE + 1
