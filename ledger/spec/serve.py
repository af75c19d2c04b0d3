"""The service of a plan: lengths of prompts and outputs, sequences in flight, and how a step takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from ledger.spec.parts import PartHeader, PartOf
from ledger.spec.structures import OPTIONAL, AnyOf, DerivedType, ListOf, quantity
from ledger.spec.values import Size

SEQUENCES = Size(most=1_000_000_000)
TOKENS = quantity("tokens")
CHUNK = 2048  # tokens of prompts in a step of an engine of which nothing is said


@dataclass(frozen=True)
class LengthShare:
    """One length of a distribution, in tokens, and the share of sequences that have it."""

    length: Annotated[int, TOKENS, "Tokens of each."]
    share: Annotated[Fraction, quantity("1", greatest=1, exact=True), "How many of all sequences: `30 %`."]


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths in tokens, one length where all are alike; shares add up to 1."""

    parts: tuple[tuple[int, Fraction], ...]

    @classmethod
    def alike(cls, length: int) -> Lengths:
        """The distribution with one length."""
        return cls(((length, Fraction(1)),))

    @classmethod
    def of(cls, listed: tuple[LengthShare, ...]) -> Lengths:
        """Lengths with their shares, which a rule holds to a sum of 1."""
        return cls(tuple((entry.length, entry.share) for entry in listed))

    def average(self, of: Callable[[int], Any] = Fraction) -> Any:
        """The mean of a function of a length; of the length itself where none is named."""
        return sum(share * of(length) for length, share in self.parts)

    @property
    def mean(self) -> Fraction:
        """Tokens of a sequence on average."""
        return Fraction(self.average())

    @property
    def longest(self) -> int:
        """The largest length, in tokens."""
        return max(length for length, _ in self.parts)

    @property
    def shortest(self) -> int:
        """The smallest length, in tokens."""
        return min(length for length, _ in self.parts)

    def __str__(self) -> str:
        """The lengths as a spec states them."""
        if len(self.parts) == 1:
            return f"{self.longest} tokens"
        entries = (f"{{length: {length} tokens, share: {float(share):.6g}}}" for length, share in self.parts)
        return f"[{', '.join(entries)}]"


LENGTHS = AnyOf((DerivedType(TOKENS, Lengths.alike), DerivedType(ListOf(PartOf(LengthShare), 1), Lengths.of)))
A_DISTRIBUTION = (
    "one for all, or a distribution: `[{length: 512 tokens, share: 70 %}, {length: 8192 tokens, share: 30 %}]`."
)


@dataclass(frozen=True)
class Serve:
    """A service: lengths in tokens, and sequences in flight over all replicas or requests that arrive in a second.

    `concurrency` is None where the plan states how many requests arrive: it follows by Little's law.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What is served, where the plan is of a model that answers and not of one that is trained."
    )

    prompt: Annotated[Lengths, LENGTHS, f"Tokens of a prompt: {A_DISTRIBUTION}"]
    output: Annotated[Lengths, LENGTHS, f"Tokens of an answer: {A_DISTRIBUTION}"]
    concurrency: Annotated[int | None, SEQUENCES, "Sequences in flight, over all replicas.", OPTIONAL] = None
    arrival_rate: Annotated[
        float | None,
        quantity("requests/s"),
        "Requests that arrive, over all replicas; the sequences in flight follow from it.",
        OPTIONAL,
    ] = None
    prefix: Annotated[
        int, quantity("tokens", zero=True), "Tokens at the start of every prompt that all sequences share in the cache."
    ] = 0
    chunk: Annotated[
        int,
        quantity("tokens"),
        "Tokens of prompts that a step takes at most beside the sequences that are decoded (chunked prefill); where "
        f"nothing is said as many as the stack's engine takes, or {CHUNK}.",
    ] = 0
    speculative: Annotated[
        float,
        quantity("1", least=1, greatest=1000),
        "Tokens that a step of decoding yields on average: above 1 where drafts are accepted, a stated factor.",
    ] = 1.0
    source: str = ""

    def __str__(self) -> str:
        """The service as a spec states it, without what follows from it."""
        load = (
            f"concurrency: {self.concurrency}" if self.concurrency else f"arrival_rate: {self.arrival_rate} requests/s"
        )
        return f"{{prompt: {self.prompt}, output: {self.output}, {load}}}"

    def average(self, of: Callable[[int, int], Any]) -> Any:
        """The mean over all sequences of a function of their prompt and output, whose lengths do not depend."""
        return self.prompt.average(lambda prompt: self.output.average(lambda output: of(prompt, output)))
