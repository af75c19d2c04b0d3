"""The command line: a verb per module, imported when it is named.

Takes the words of a command line; prints results on standard output and all else on standard error, and ends with the
exit codes below. Read `verbs` first (the group, and how errors become exit codes), then a verb such as `show`;
`options`, `tables` and `progress` are what verbs share.
"""

from __future__ import annotations

import click

from ledger import __version__
from ledger.cli.verbs import Verbs

# verb -> module that holds its `command`, in the order of the help
VERBS = {
    "report": "ledger.cli.report",
    "reproduce": "ledger.cli.reproduce",
    "check": "ledger.cli.check",
    "show": "ledger.cli.show",
    "explain": "ledger.cli.explain",
    "diff": "ledger.cli.diff",
    "compare": "ledger.cli.compare",
    "ci": "ledger.cli.ci",
    "solve": "ledger.cli.solve",
    "sweep": "ledger.cli.sweep",
    "verify": "ledger.cli.verify",
    "bench": "ledger.cli.bench",
    "calibrate": "ledger.cli.calibrate",
    "score": "ledger.cli.score",
    "init": "ledger.cli.init",
    "import": "ledger.cli.import_",
    "list": "ledger.cli.list_",
    "schema": "ledger.cli.schema",
    "units": "ledger.cli.units",
    "git-setup": "ledger.cli.git_setup",
    "git-text": "ledger.cli.git_text",
}


VERSION_HELP = "The version, and the digest of the library that comes with it."


def tell_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """Prints what `--version` prints, and leaves."""
    if asked:
        from ledger.spec.version import library_digest, short_digest

        click.echo(f"ledger {__version__}, library {short_digest(library_digest())}")
        ctx.exit()


@click.group(cls=Verbs, table=VERBS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=tell_version, help=VERSION_HELP)
def main() -> None:
    """Compile a training plan: what it computes, holds, sends, takes and costs.

    SPEC is a path, REV:path for a git revision, or - for standard input.
    Results go to standard output, everything else to standard error.

    Exit codes: 0 done, 1 a check failed, 2 bad input or usage, 70 a mistake of ledger itself.
    """
