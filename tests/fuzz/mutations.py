"""What is done to a document: to its tree, to its text, to its bytes."""

from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.fuzz import hostile
from tests.fuzz.hostile import Raw

Path = tuple[Any, ...]
Pool = dict[Any, list[Any]]  # of a key, the values that documents have there

READABLE = 4300  # digits of a number that Python reads


class Pairs(list[tuple[str, Any]]):
    """A mapping in which a key may stand twice."""

    __slots__ = ()


def places(tree: Any, path: Path = ()) -> list[Path]:
    """Every place in a document."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(found for key, inner in entries for found in places(inner, (*path, key)))]


def at(tree: Any, path: Path) -> Any:
    """What stands there."""
    for step in path:
        tree = tree[step]
    return tree


def pool_of(trees: Iterable[Any]) -> Pool:
    """By key, what stands there in any of these documents."""
    pool: Pool = {}
    for tree in trees:
        for path in places(tree):
            if path and isinstance(path[-1], str):
                pool.setdefault(path[-1], []).append(at(tree, path))
    return pool


def _replace(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    owner[key] = hostile.value(random)


def _near(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    owner[key] = hostile.near(owner[key], random)


def _splice(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    owner[key] = copy.deepcopy(random.choice(pool.get(key) or [hostile.value(random)]))


def _foreign(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    owner[key] = copy.deepcopy(random.choice(pool[random.choice(list(pool))]))


def _remove(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    del owner[key]


def _rename(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    if isinstance(owner, dict):
        owner[random.choice((f"{key}x", key[1:], key.upper(), random.choice(list(pool)), hostile.TEXTS[5]))] = (
            owner.pop(key)
        )


def _add(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    if isinstance(owner, dict):
        new = random.choice(list(pool))
        owner[new] = copy.deepcopy(random.choice(pool[new]))
    else:
        owner.insert(key, copy.deepcopy(owner[key]))


def _twice(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    if isinstance(owner[key], dict):
        owner[key] = Pairs([*owner[key].items(), *list(owner[key].items())[:1]])
    elif isinstance(owner[key], list):
        owner[key] = owner[key] * random.choice((2, 3, 500))
    else:
        owner[key] = [owner[key], owner[key]]


def _wrap(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    owner[key] = random.choice(([owner[key]], {"value": owner[key]}, {"base": owner[key]}, {"name": owner[key]}))


def _swap(owner: Any, key: Any, random: Random, pool: Pool) -> None:
    other = random.choice(list(owner) if isinstance(owner, dict) else range(len(owner)))
    owner[key], owner[other] = owner[other], owner[key]


TREE: tuple[tuple[int, Callable[[Any, Any, Random, Pool], None]], ...] = (
    (6, _replace), (8, _near), (8, _splice), (2, _foreign), (3, _remove), (2, _rename), (4, _add),
    (1, _twice), (1, _wrap), (1, _swap),
)  # fmt: skip


def mutate_tree(tree: Any, random: Random, pool: Pool) -> Any:
    """The document with one place changed."""
    changed = copy.deepcopy(tree)
    choices = [path for path in places(changed) if path]
    if not choices:
        return hostile.value(random)
    path = random.choice(choices)
    change = random.choices([one for _, one in TREE], weights=[weight for weight, _ in TREE])[0]
    change(at(changed, path[:-1]), path[-1], random, pool)
    return changed


def written(value: Any) -> str:
    """A value as JSON, and raw text as it is; keys may stand twice."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict | Pairs):
        pairs = value.items() if isinstance(value, dict) else [pair for pair in value if isinstance(pair, tuple)]
        return "{" + ", ".join(f"{json.dumps(str(key))}: {written(inner)}" for key, inner in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def document(tree: Any) -> str:
    """A document of YAML with a line for each key."""
    if not isinstance(tree, dict):
        return written(tree) + "\n"
    return "".join(f"{json.dumps(str(key))}: {written(value)}\n" for key, value in tree.items())


def mutate_text(text: str, random: Random) -> str:
    """The text with a stretch of it removed, repeated, moved, or with something put into it."""
    lines = text.splitlines(keepends=True) or [""]
    line = random.randrange(len(lines))
    start = random.randrange(len(text) + 1)
    end = min(len(text), start + random.choice((1, 1, 2, 5, 40)))
    odd = random.choice(
        (*hostile.TEXTS, *hostile.EXPRESSIONS, "&a ", "*a", "!!python/object ", "<<: ", "%", ": ", "- ", "---\n")
    )
    number = str(random.choice(hostile.NUMBERS))
    changes: tuple[Callable[[], str], ...] = (
        lambda: text[:start] + text[end:],
        lambda: text[:start] + odd + text[start:],
        lambda: text[:start] + odd + text[end:],
        lambda: text[:start] + number + text[end:],
        lambda: text[:start],
        lambda: "".join(lines[:line] + lines[line : line + 1] * random.choice((2, 3, 1000)) + lines[line + 1 :]),
        lambda: "".join(lines[:line] + lines[line + 1 :]),
        lambda: "".join([*lines[:line], "\t" + lines[line], *lines[line + 1 :]]),
        lambda: "".join(random.sample(lines, len(lines))),
        lambda: text.replace("\n", random.choice(("\r\n", "\r", "\n\n", "\u2028"))),
    )
    return random.choice(changes)()


def mutate_words(text: str, random: Random) -> str:
    """The text with one word of it, or one value behind a sign of equality, changed."""
    lines = text.split("\n")
    line = random.randrange(len(lines))
    words = lines[line].split(" ")
    word = random.randrange(len(words))
    odd = hostile.near(
        int(words[word]) if words[word].isdigit() and len(words[word]) < READABLE else words[word], random
    )
    if random.random() < 0.5:
        odd = random.choice((*hostile.NUMBERS, *hostile.TEXTS, hostile.amount(random), hostile.opened(random)))
    if "=" in lines[line] and random.random() < 0.6:
        key, _, _ = lines[line].partition("=")
        wrong = random.choice(
            (str(odd), json.dumps(str(odd)), "[1, 2]", "{a = 1}", "true", "1e400", "2026-02-30", '"""')
        )
        lines[line] = f"{key}= {wrong}"
    else:
        words[word] = str(odd)
        lines[line] = " ".join(words)
    return "\n".join(lines)


def mutate_table(text: str, random: Random) -> str:
    """The table with a cell, a name of a column, or a row changed."""
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error:  # after an earlier change
        return mutate_text(text, random)
    row = (
        random.randrange(len(rows)) if random.random() < 0.1 else random.randrange(1, len(rows)) if len(rows) > 1 else 0
    )
    column = random.randrange(len(rows[row]))
    given = rows[row][column]
    odd = (
        hostile.near(int(given) if given.isdigit() else given, random)
        if random.random() < 0.5
        else hostile.value(random)
    )
    roll = random.random()
    if roll < 0.85:
        rows[row][column] = str(odd)
    elif roll < 0.9:
        del rows[row][column]
    elif roll < 0.95:
        rows[row].insert(column, str(odd))
    else:
        rows.append(rows[row])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """The bytes with some flipped, put in, or taken out."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 3, 30))):
        at_byte = random.randrange(len(changed) + 1)
        roll = random.random()
        if roll < 0.4 and at_byte < len(changed):
            changed[at_byte] ^= 1 << random.randrange(8)
        elif roll < 0.7:
            changed[at_byte:at_byte] = random.choice(
                (b"\xff", b"\x00", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc3", b"\x1b[")
            )
        else:
            del changed[at_byte : at_byte + random.choice((1, 2, 20))]
    return bytes(changed)
