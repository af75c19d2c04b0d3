"""A click group that imports a command when it is named, and turns errors into exit codes."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from io import BufferedWriter, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import click

from ledger import __version__
from ledger.cli.plain_streams import guard_output
from ledger.spec.near import nearest
from ledger.spec.problems import SpecError
from ledger.whole_files import NO_ROOM

BAD_INPUT = 2
SHOWN = 40  # characters of a text on both sides of one that no file can have
BROKEN_PIPE = 141  # 128 + SIGPIPE
DOCSTRING = re.compile(r'^def command\(.*?^    """(.*?)"""', re.DOTALL | re.MULTILINE)  # of a verb, in its module
# Verbs -> what people type for them.
TYPED: Mapping[tuple[str, ...], str] = {
    ("show", "report"): "plan run estimate compile summary",
    ("show", "score"): "predict simulate",
    ("check",): "validate lint test doctor",
    ("compare", "diff"): "versus vs against",
    ("sweep", "solve"): "search optimize optimise tune autotune recommend",
    ("solve",): "invert maximize minimize",
    ("explain",): "why trace",
    ("bench",): "benchmark measure profile",
    ("calibrate", "check"): "fit fits",
    ("score",): "evaluate error errors",
    ("verify",): "judge prove",
    ("init",): "new create start",
    ("import",): "convert load from",
    ("list",): "ls library models accelerators",
    ("report",): "html pdf print render",
}


class Verbs(click.Group):
    """The verbs of `table` (verb -> module with a `command`); an error of the input leaves with exit code 2."""

    def __init__(self, *args: Any, table: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command of that name, or None."""
        if cmd_name not in self.table:
            return None
        command: click.Command = import_module(self.table[cmd_name]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Writes a line for each verb, from the text of its module: importing all of them takes half the time."""
        limit = formatter.width - 6 - max(map(len, self.table))
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.documented(name).get_short_help_str(limit)) for name in self.table])

    def documented(self, name: str) -> click.Command:
        """A verb that can be described; it has no more than its docstring where its module is not imported."""
        module = self.table[name]
        if module not in sys.modules:
            spec = find_spec(module)
            if spec and spec.origin and spec.origin.endswith(".py"):
                match = DOCSTRING.search(Path(spec.origin).read_text(encoding="utf-8"))
                if match:
                    return click.Command(name, help=match[1])
        command: click.Command = import_module(module).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words; a NUL byte, which only a caller from Python can pass, is in no name of a file."""
        if any("\0" in word for word in args):
            raise click.UsageError("a word with a NUL byte", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named first; a usage error with the verbs that may have been meant, where it is none."""
        name = args[0]
        if name in self.table or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        meant = next((verbs for verbs, words in TYPED.items() if name in words.split()), ())
        named = " or ".join(f"`{verb}`" for verb in meant if verb in self.table)
        help_text = f"did you mean {named}?" if named else nearest(name, list(self.table))
        raise click.UsageError(f"there is no verb `{name}`; {help_text}", ctx)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the command line; what nobody foresaw ends it with a code of its own, not with a traceback.

        A stream that was closed (`>&-`) takes everything and gives nothing.
        """
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open to the end
        prepare_output()
        guard_output()
        try:
            with ended_in_time():
                return super().main(*args, **kwargs)
        except OSError as error:  # of what click prints by itself, or of the words about another error
            sys.exit(refused(error))
        except MemoryError:
            click.echo("error: there is not enough memory", err=True)
            sys.exit(BAD_INPUT)
        except Exception as error:  # the last handler: a silent pass would be worse than any message
            if shows_tracebacks():
                raise
            click.echo(own_mistake(error), err=True)
            sys.exit(OWN_MISTAKE)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; errors that the user caused are printed on stderr without a traceback."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except SpecError as error:
            from ledger.cli.options import tell

            tell(error.problems, error.sources)
            ctx.exit(BAD_INPUT)
        except UnicodeEncodeError as error:  # a name that no file can have
            excerpt = error.object[max(error.start - SHOWN, 0) : error.end + SHOWN]
            printable = excerpt.encode("ascii", "backslashreplace").decode()
            click.echo(f"error: `{printable}` is not text that a file could be called by", err=True)
            ctx.exit(BAD_INPUT)
        except OSError as error:
            ctx.exit(refused(error))
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        return result


def refused(error: OSError) -> int:
    """Prints what the system refused, and returns the exit code; a closed or full stream is dropped from here on."""
    if isinstance(error, BrokenPipeError):
        drop(sys.stdout)
        return BROKEN_PIPE
    subject = f"{error.filename}: " if error.filename else ""
    if error.errno in NO_ROOM and not error.filename:  # every file that is written is named
        subject = "standard output: "
        drop(sys.stdout)
    try:
        click.echo(f"error: {subject}{error.strerror or error}", err=True)
    except OSError:
        drop(sys.stderr)
    return BAD_INPUT


# --- errors that nobody foresaw ---

OWN_MISTAKE = 70  # EX_SOFTWARE of sysexits.h: an internal error
TRACEBACK = "LEDGER_TRACEBACK"  # an environment variable: where it is set, developers see the traceback instead


def shows_tracebacks() -> bool:
    """Whether whoever runs the program has asked for tracebacks."""
    return bool(os.environ.get(TRACEBACK))


def own_mistake(error: Exception) -> str:
    """The error and its place in this package in one line, with what to do about it."""
    from ledger.mistakes import mistake_in_words

    return (
        f"error: a mistake of ledger {__version__} itself: {mistake_in_words(error)}; nothing that it"
        f" printed counts. Please report it with the input, where you have ledger from; {TRACEBACK}=1 shows more"
    )


# --- standard output that takes every character, and loses none in silence ---


def prepare_output() -> None:
    """Makes standard output print characters outside its encoding as numbers, and raise where it cannot be written.

    UTF-8 has none for bytes of file names and arguments that are not UTF-8 themselves.
    Without a buffer (PYTHONUNBUFFERED), Python drops what a full disk does not take, and says nothing.
    """
    stream = sys.stdout
    if not isinstance(stream, TextIOWrapper):
        return
    stream.reconfigure(errors="backslashreplace")
    if isinstance(stream.buffer, RawIOBase):
        encoding, errors = stream.encoding, stream.errors
        sys.stdout = TextIOWrapper(BufferedWriter(stream.detach()), encoding, errors, line_buffering=True)


def drop(stream: TextIO) -> None:
    """Discards what is still buffered, which would raise again when Python closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# --- Ctrl-C ends a verb in time ---

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
GRACE = 1.5  # seconds for what was begun to be taken back


@contextmanager
def ended_in_time() -> Iterator[None]:
    """Ends the process and all that it started where Ctrl-C does not end the block within the grace.

    A wait for a thread or a process, or a long call of a library, would answer only afterwards. Does nothing in a
    thread, to which the system tells no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    block_ended = threading.Event()
    earlier_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_end_late, args=(reader, block_ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        block_ended.set()
        signal.set_wakeup_fd(earlier_fd)
        os.close(writer)
        watcher.join(GRACE)  # one that outlives the interpreter is ended by force, which takes memory there may not be


def _end_late(reader: int, block_ended: threading.Event) -> None:
    """Reads the numbers of signals until the block is over; ends everything where it is not over after Ctrl-C."""
    while signals := os.read(reader, 1):
        if signals[0] == signal.SIGINT and not block_ended.wait(GRACE):
            _end_all()
    os.close(reader)


def _end_all() -> None:
    """Ends the processes of this one, and this one."""
    multiprocessing = sys.modules.get("multiprocessing")
    for child in multiprocessing.active_children() if multiprocessing else ():
        child.kill()
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
