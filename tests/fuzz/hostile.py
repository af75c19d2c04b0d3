"""Values that no author of a plan means: numbers beyond floats, texts that a terminal or a spreadsheet would obey."""

from __future__ import annotations

from random import Random
from typing import Any


class Raw(str):
    """Text that stands in a document as it is, without quotes."""

    __slots__ = ()


NUMBERS: tuple[Any, ...] = (
    *(0, 1, 2, 3, 5, 7, 8, 16, 64, 100, 1000, 4096, 65536, -1, -8, -0.0, 0.1, 0.5, 0.999, 1.5, 1e-300, 5e-324, 1e308),
    *(10**9, 10**12, 10**12 + 1, 10**15, 2**31, 2**53 + 1, 2**63, 10**39, -(10**12), 1e-9, 1e12, 1e13),
    *map(Raw, ("9" * 5000, ".nan", ".inf", "-.inf", "1e400", "1e-400", "0x" + "f" * 30, "0o17", "1.", "-.5", "1_000")),
)
AMOUNTS = (
    "0",
    "1",
    "-1",
    "3",
    "80",
    "0.5",
    "1e3",
    "1e999",
    "1e-12",
    "1e21",
    "1e60",
    "999999999999",
    "9" * 60,
    "1.",
    "+5",
)
UNITS = (
    *(
        "",
        "B",
        "GB",
        "GiB",
        "gb",
        "Gb/s",
        "TB/s",
        "FLOP/s",
        "TFLOP/s",
        "W",
        "kW",
        "s",
        "us",
        "ms",
        "min",
        "h",
        "d",
        "y",
    ),
    *(
        "/s",
        "/d",
        "tokens",
        "T tokens",
        "images",
        "tokens/s",
        "requests/s",
        "parameters",
        "B parameters",
        "USD",
        "%",
        "kg",
    ),
)
EXPRESSIONS = (
    *(
        "d_model * d_model",
        "2 ** 10 ** 10",
        "heads / 0",
        "-d_model",
        "d_model // 3",
        "(" * 300 + "1" + ")" * 300,
        "9" * 4000,
    ),
    *(
        "x",
        "layers",
        "__import__('os')",
        "seq_len",
        "data * data",
        "1 if 1 else 2",
        "d_model.real",
        "4 * d_model",
        "vocab",
    ),
    *(
        "d_ff",
        "heads",
        "8 * data",
        "d_model / heads",
        "d_model % 0",
        "1" + " * 9" * 400,
        "~1",
        "[1]",
        "lambda: 1",
        "2026-13-45",
    ),
    *(
        "((1 / 10 ** 20) ** 64) ** 64",
        "1 / 3 ** 60",
        "sqrt(1e60) ** 64",
        "1e400",
        "min(d_model, 1)",
        "sum('*')",
    ),
)
OPENED = ("$((", "$(", "${a:-", "`", '"', "'", "(", "[", "{", "<", "*", "_", "|", "\\", "&", "!", "%", "[](", "\r")
TEXTS = (
    *(
        "",
        " ",
        "\n",
        "\t",
        "a\nb",
        "\x1b[31mred",
        "\x00",
        "\u202eabc",
        "\ud800",
        "\u2028",
        "名前",
        "é",
        "a" * 10_000,
        "`",
        "|",
    ),
    *(
        "{{7*7}}",
        "<script>alert(1)</script>",
        "=cmd|' /C calc'!A0",
        "::error::x",
        "[a](http://a.b)",
        "@someone",
        "%s%n",
        "$x$",
    ),
    *(
        "/dev/zero",
        "/dev/null",
        "/nowhere/x.yaml",
        "../x.yaml",
        ".",
        "/",
        "-",
        "HEAD:specs/8b.yaml",
        "./plan.yaml",
        "x" * 300,
    ),
    *(
        "null",
        "true",
        "on",
        "off",
        "none",
        "best",
        "auto",
        "~",
        "2026-02-30",
        "2026-05-18",
        "2025",
        "1999-01",
        "0",
        "1",
        "-1",
    ),
    *(
        "bf16",
        "fp32",
        "fp8_e4m3",
        "nvfp4",
        "matmul.bf61",
        "matmul.bf16",
        "attention",
        "80 x" + " " * 60_000 + "GB",
        "e=-1",
    ),
)


def amount(random: Random) -> str:
    """A quantity, of a unit that may be of another dimension."""
    return f"{random.choice(AMOUNTS)}{random.choice((' ', ' ', '', '  '))}{random.choice(UNITS)}"


def container(random: Random) -> Any:
    """A list or a mapping where a value stands, deep, wide or empty."""
    scalar = random.choice(NUMBERS)
    deep: Any = scalar
    for _ in range(random.choice((2, 45, 200))):
        deep = [deep] if random.random() < 0.5 else {"a": deep}
    wide = [scalar] * random.choice((2, 300, 20_000))
    return random.choice(
        ([], {}, [scalar], {"a": 1}, {"value": scalar, "source": "x"}, {"base": "x"}, [[]], deep, wide)
    )


def opened(random: Random) -> str:
    """What is opened again and again and never closed: whoever looks for its end each time takes long."""
    piece = random.choice(OPENED)
    return piece * random.choice((50, 5_000, 60_000 // len(piece)))


def value(random: Random) -> Any:
    """Any of these."""
    kinds = (
        lambda: random.choice(NUMBERS),
        lambda: random.choice((None, True, False)),
        lambda: amount(random),
        lambda: random.choice(EXPRESSIONS),
        lambda: random.choice(TEXTS),
        lambda: container(random),
        lambda: opened(random),
    )
    return random.choices(kinds, weights=(6, 2, 5, 3, 4, 2, 1))[0]()


def near(given: Any, random: Random) -> Any:
    """A value near one that is there: twice, half, next, negative, of another type, or with another unit."""
    if isinstance(given, bool):
        return not given
    if isinstance(given, int):
        changed = (given + 1, given - 1, 2 * given, given // 2, -given, 3 * given, given + 0.5, str(given), 10 * given)
        return random.choice(changed)
    if isinstance(given, float):
        return random.choice(
            (given * 2, given / 2, -given, 1 - given, given * 100, given / 1e6, int(given), str(given))
        )
    if isinstance(given, str) and given[:1].isdigit():
        number, _, unit = given.partition(" ")
        return random.choice(
            (f"{random.choice(AMOUNTS)} {unit}", f"{number} {random.choice(UNITS)}", number, f"{number}0 {unit}")
        )
    if isinstance(given, str) and given:
        at = random.randrange(len(given))
        return random.choice(
            (given[:at] + given[at + 1 :], given[:at] + "x" + given[at:], given.upper(), [given], given + " ")
        )
    return value(random)
