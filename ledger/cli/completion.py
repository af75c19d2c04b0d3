"""Shell completion of specs, names of the library, keys of a plan and their values, accounts and totals of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ledger.spec.sources import YAML

PATIENCE = 1.0  # seconds that somebody who pressed a key is kept waiting
MOST_LAYERS = 8  # of values that count layers

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def specs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Plans of the library and YAML files of this folder; where none begins so, any path, as the shell completes it."""
    from ledger.spec.library import default_library

    files_here = sorted(path.name for path in Path().iterdir() if path.suffix in YAML) if "/" not in incomplete else []
    completions = _completions([*default_library().names("plan"), *files_here], incomplete)
    folders = "/" in incomplete or (incomplete and any(Path().glob(f"{incomplete.replace('*', '')}*/")))
    return [CompletionItem(incomplete, type="file")] if folders or not completions else completions


def library(kind: str) -> Complete:
    """The names of a kind in the library."""

    def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
        from ledger.spec.library import default_library

        return _completions(default_library().names(kind), incomplete)

    return names


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """The kinds of specs that the library has."""
    from ledger.spec.library import FOLDERS

    return _completions(FOLDERS, incomplete)


def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Keys of a plan, one step of their path at a time, each with what it is."""
    from ledger.spec.load import plan_keys
    from ledger.spec.paths import row_at

    depth = incomplete.count(".")
    matching = [key for key in plan_keys() if key.startswith(incomplete) and key.count(".") == depth]
    if len(matching) == 1:  # what follows it as well, so that a shell does not end the word there
        matching = [key for key in plan_keys() if key == matching[0] or key.startswith(f"{matching[0]}.")]
    meanings = {key: rows.meaning for key in matching if (rows := row_at(key))}
    return [CompletionItem(key, help=meanings.get(key)) for key in matching]


def settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`KEY=VALUE`: keys, and the values of one that has an equals sign, where they can be listed."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        return keys(ctx, param, incomplete)
    return [CompletionItem(f"{key}={candidate}") for candidate in values(key) if candidate.startswith(value)]


def values(key: str) -> list[str]:
    """The values that a key may have: names of the library, or the choices of its type."""
    from ledger.spec.edit import flow
    from ledger.spec.kinds import LIBRARY_PARTS
    from ledger.spec.library import default_library
    from ledger.spec.options import listed_values
    from ledger.spec.paths import key_of, type_of

    if key_of(key) in LIBRARY_PARTS:
        return list(default_library().names(key_of(key)))
    return [flow(value) for value in listed_values(type_of(key), MOST_LAYERS)]


def accounts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Accounts and totals of the plan that was named before; none where it takes too long to compile."""
    # Of a line that ends in an option without a value, click leaves the arguments unread.
    spec = ctx.params.get("spec") or next(iter(ctx.params.get("specs") or ctx.args), None)
    return _completions(known_names(spec, ctx.params.get("overrides") or ()), incomplete)


def totals(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Totals of the plan that was named before."""
    return [item for item in accounts(ctx, param, incomplete) if "/" not in item.value]


def known_names(spec: str | None, overrides: Sequence[str]) -> list[str]:
    """Every account and total of a plan; none of what is no plan, or is not compiled in time."""
    import ledger
    from ledger.search.extent import OutOfTimeError, time_limit
    from ledger.spec.problems import SpecError

    if not spec or spec == "-":
        return []
    try:
        with time_limit(PATIENCE):
            compiled = ledger.compile(spec, overrides)
            return list(dict.fromkeys([*(leaf.account for leaf in compiled.accounts), *compiled.totals]))
    except (SpecError, OSError, OutOfTimeError):
        return []


def _completions(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]
