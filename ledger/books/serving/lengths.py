"""What attention sees and keeps of sequences whose lengths are distributions: exact means over tokens and sequences."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from ledger.books.counts import reach
from ledger.spec.plan import Attention, Serve

Tokens = int | Fraction


@dataclass(frozen=True)
class Chunks:
    """How a prompt is taken: `count` passes of `size` new tokens each, as even as they can be."""

    count: Fraction
    size: Fraction


def seen_by(attention: Attention, tokens: Tokens) -> Tokens:
    """Keys that the queries at positions 1 to `tokens` attend to under their causal mask, all together."""
    if attention.chunk:
        full, further = divmod(tokens, attention.chunk)
        return full * _triangle(attention.chunk) + _triangle(further)
    limit = min(tokens, attention.window or tokens)
    return _triangle(limit) + (tokens - limit) * limit


def _triangle(tokens: Tokens) -> Fraction:
    return Fraction(tokens) * (tokens + 1) / 2


def chunks(serve: Serve, prompt: int) -> Chunks:
    """The passes of one prompt, whose shared prefix is there."""
    new = prompt - serve.prefix
    count = ceil(Fraction(new, serve.chunk))
    return Chunks(Fraction(count), Fraction(new, count))


def mean_chunks(serve: Serve) -> Chunks:
    """The passes of a prompt on average: how many, and the new tokens of one."""
    count = serve.prompt.average(lambda prompt: chunks(serve, prompt).count)
    return Chunks(count, (serve.prompt.mean - serve.prefix) / count)


def moments_of_chunks(serve: Serve) -> tuple[Fraction, Fraction]:
    """The mean of the passes of a prompt, and that of their square."""
    first = serve.prompt.average(lambda prompt: chunks(serve, prompt).count)
    return Fraction(first), Fraction(serve.prompt.average(lambda prompt: chunks(serve, prompt).count ** 2))


def attended_in_prompt(serve: Serve, attention: Attention, prompt: int) -> Fraction:
    """Keys that a new token of a prompt attends to, on average."""
    seen = seen_by(attention, prompt) - seen_by(attention, serve.prefix)
    return Fraction(seen, 1) / (prompt - serve.prefix)


def read_in_prompt(serve: Serve, attention: Attention, prompt: int) -> Fraction:
    """Tokens whose keys a pass over a chunk of a prompt reads, on average over its chunks."""
    passes = chunks(serve, prompt)
    return passes.size + _read_before(attention, serve.prefix, passes.size, int(passes.count)) / passes.count


def _read_before(attention: Attention, first: int, size: Fraction, count: int) -> Fraction:
    """Tokens before each of `count` chunks that it reads, all together; the first chunk follows `first` tokens."""
    if attention.chunk:
        parts = size.denominator
        begun = floors(count, attention.chunk * parts, size.numerator, first * parts)
        return _series(first, size, count) - attention.chunk * begun
    if not attention.window:
        return _series(first, size, count)
    limit = attention.window - 1
    below = max(0, min(count, (limit - first) // size + 1))  # chunks that read all there is
    return _series(first, size, below) + (count - below) * limit


def _series(first: int, step: Fraction, count: int) -> Fraction:
    return count * first + step * count * (count - 1) / 2


def floors(count: int, divisor: int, step: int, first: int) -> int:
    """The sum of (first + i step) // divisor over i from 0 to `count` - 1, in as many turns as Euclid's algorithm."""
    total = 0
    while True:
        quotient, step = divmod(step, divisor)
        total += quotient * (count * (count - 1) // 2)
        quotient, first = divmod(first, divisor)
        total += quotient * count
        last = step * count + first
        if last < divisor:
            return total
        count, first = divmod(last, divisor)
        divisor, step = step, divisor


def attended_in_prompts(serve: Serve, attention: Attention) -> Fraction:
    """Keys that a new token attends to, on average over the tokens of all prompts."""
    new = serve.prompt.mean - serve.prefix
    return Fraction(serve.prompt.average(lambda p: attended_in_prompt(serve, attention, p) * (p - serve.prefix)) / new)


def read_in_prompts(serve: Serve, attention: Attention) -> Fraction:
    """Tokens whose keys a pass over a chunk reads, on average over the chunks of all prompts."""
    count = mean_chunks(serve).count
    return Fraction(
        serve.prompt.average(lambda p: read_in_prompt(serve, attention, p) * chunks(serve, p).count) / count
    )


def decoded(serve: Serve) -> Fraction:
    """Tokens of an answer that decoding gives: all but the first, which the prompt's last pass gives."""
    return serve.output.mean - 1


def attended_in_decoding(serve: Serve, attention: Attention) -> Fraction:
    """Keys that a token attends to while it is decoded, itself included, on average over all that is decoded."""
    count = decoded(serve)
    if count <= 0:
        return Fraction(serve.prompt.average(lambda p: seen_by(attention, p + 1) - seen_by(attention, p)))

    def together(prompt: int) -> Fraction:
        return Fraction(serve.output.average(lambda o: seen_by(attention, prompt + o - 1) - seen_by(attention, prompt)))

    return Fraction(serve.prompt.average(together) / count)


def kept_tokens(attention: Attention, tokens: Tokens) -> Tokens:
    """Tokens of a sequence whose keys and values wait: those that a later token may attend to."""
    return Fraction(reach(attention, tokens))


def mean_kept(serve: Serve, attention: Attention, grown: Fraction = Fraction(1), shared: int = 0) -> Fraction:
    """Tokens that wait of a sequence on average, with that share of its output, beyond a shared prefix."""
    return Fraction(serve.average(lambda prompt, output: kept_tokens(attention, prompt + grown * output - shared)))
