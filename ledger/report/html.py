"""The report as one HTML file that needs no network, and the same page as the PDF is set from."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.bccache import Bucket, BytecodeCache
from markupsafe import Markup, escape

from ledger.caches import Cache
from ledger.report import assets, svg
from ledger.report.escape import code, fenced, literal, sentence
from ledger.report.seals.seal import published_seal
from ledger.report.typesetting.pictures import drop_rules
from ledger.report.views import filled_sections, section_numbers
from ledger.report.views.live import LiveView, LoadView
from ledger.report.views.origin import made_from
from ledger.report.views.parts import number_captions
from ledger.spec.version import short_digest

if TYPE_CHECKING:
    from jinja2 import Environment

    from ledger.report.views.parts import Report


LETTER = re.compile(r'<symbol id="([^"]+)".*?</symbol>', re.DOTALL)
LINE = re.compile(r'(<svg [^>]*class="formula [^>]*>)(.*?)</svg>', re.DOTALL)

MARKUP = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}  # as JSON may write them too

KEY = re.compile(r"`([^`]+)`")
SEPARATOR = re.compile(r"([/.])(?=\w)(?!yaml)")


def render(report: Report, *, screen: bool = True) -> str:
    """The page: with script and policy for the screen, with cut tables and page numbers in its contents for paper."""
    plan = report.compiled.plan
    style = stylesheet() + assets.text("live.css") if screen else stylesheet()
    sections = filled_sections(report, screen=screen)
    live_scripts = [data.script for _, data in sections if isinstance(data, LiveView | LoadView)]  # of a panel
    script = "".join((assets.text("script.js"), *live_scripts)) if screen else ""
    page = (
        environment()
        .get_template("report.html")
        .render(
            screen=screen,
            kind="Serving plan" if plan.serve else "Training plan",
            title=plan.title,
            name=plan.name,
            digest=short_digest(plan.digest),
            author=", ".join(report.seal.revision.authors) if report.seal and report.seal.revision else "ledger",
            made_from=made_from(report),
            headline=report.compiled.verdict.headline,
            sections=sections,
            section_numbers=section_numbers(sections),
            style=Markup(style),  # noqa: S704 - the project's own file
            script=Markup(script),  # noqa: S704 - the project's own files, and data in which no markup can end a script
            policy=content_policy(style, script),
            seal=data_block(published_seal(report.seal)) if screen and report.seal else "",
        )
    )
    page = number_captions(page)
    return share_letters(page) if screen else page.replace("/<wbr>", "/")  # after which paper breaks lines by itself


def data_block(record: Mapping[str, Any]) -> Markup:
    """JSON inside a page, as data: no letter in it can end the element that holds it or begin another."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(MARKUP))  # noqa: S704 - without any of the letters of markup


@cache
def environment() -> Environment:
    """Templates that escape everything and refuse a name they do not know."""
    templates = _environment("page")
    templates.filters["breakable"] = breakable
    templates.filters["coded"] = coded
    return templates


@cache
def markdown_environment() -> Environment:
    """Templates of Markdown, in which no value is markup but what `escape.py` wrote."""
    templates = _environment("markdown", finalize=_markdown_value)
    for name, written in (("code", code), ("fenced", fenced), ("literal", literal)):
        templates.globals[name] = partial(_marked_up, written)
    return templates


def _marked_up(written: Callable[..., str], *of: object) -> Markup:
    return Markup(written(*of))  # noqa: S704 - escaped


def _markdown_value(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(sentence(str(value)))  # noqa: S704 - escaped


def _environment(name: str, finalize: Callable[[Any], Any] | None = None) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(assets.templates())
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        finalize=finalize,
        bytecode_cache=CompiledTemplates(name),
    )


def breakable(text: str) -> Markup:
    """A key or a place that may go on in the next line after a separator."""
    return Markup(SEPARATOR.sub(r"\1<wbr>", str(escape(text))))  # noqa: S704 - escaped before


def coded(text: str) -> Markup:
    """A sentence whose keys stand in backticks, as in messages on a terminal, and whose citations are links."""
    return linked(Markup(KEY.sub(r"<code>\1</code>", str(escape(text)))))  # noqa: S704 - escaped before


@cache
def stylesheet() -> str:
    """Fonts, colours and rules, in one text so that one digest covers them."""
    return "\n".join((assets.font_faces(), svg.stylesheet(), assets.text("style.css"), *drop_rules()))


def content_policy(style: str, script: str) -> str:
    """A content security policy that allows exactly this style, this script and the fonts inside the page."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{policy_digest(style)}'",
            f"script-src '{policy_digest(script)}'",
            "font-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def policy_digest(text: str) -> str:
    """What a policy calls a text inside the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def share_letters(page: str) -> str:
    """The page with each letter of the formulas, and each line of one, drawn once.

    User text is escaped, so every symbol is our own.
    """
    shapes = {match[1]: match[0] for match in LETTER.finditer(page)}
    if not shapes:
        return page
    page = LETTER.sub("", page)
    names = {
        body: f"line-{number}" for number, body in enumerate(dict.fromkeys(body for _, body in LINE.findall(page)))
    }
    page = LINE.sub(lambda match: f'{match[1]}<use href="#{names[match[2]]}"/></svg>', page)
    letters = "".join(shape for _, shape in sorted(shapes.items()))
    lines = "".join(f'<g id="{name}">{body}</g>' for body, name in names.items())
    sheet = f'<svg class="letters" width="0" height="0" aria-hidden="true"><defs>{letters}{lines}</defs></svg>'
    return page.replace("<header>", f"{sheet}\n<header>", 1)


# --- citations as links ---

OWNERS = (  # on GitHub, whom sources of the library cite without a commit
    *("aigatech", "AnswerDotAI", "argonne-lcf", "aws-samples", "bigscience-workshop", "calculon-ai", "casper-hansen"),
    *("coreweave", "Dao-AILab", "eyao600", "facebookresearch", "foundation-model-stack", "huggingface", "InternLM"),
    *("karpathy", "KempnerInstitute", "linkedin", "meta-pytorch", "microsoft", "mlcommons", "MooreThreads"),
    *("mosaicml", "NVIDIA", "NVIDIA-NeMo", "oracle-quickstart", "pytorch", "ROCm", "stas00"),
)
NAME = r"[A-Za-z0-9][\w.-]*\w"
OF_A_MODEL = r"(?:(?<=\.json of )|(?<=metadata of )|(?<=model card of ))"  # on Hugging Face
CITATIONS = (  # what stands in a source, and the address that it is of; the first that matches
    (r"https?://[^\s<>\"'()]*[^\s<>\"'().,;:]", "{0}"),
    (r"arXiv[:\s](?P<arxiv>\d{4}\.\d{4,5})", "https://arxiv.org/abs/{arxiv}"),
    (r"(?i:doi[:\s]\s?)?(?P<doi>10\.\d{4,9}/[^\s;,)]*[^\s;,).])", "https://doi.org/{doi}"),
    (rf"{OF_A_MODEL}(?P<hub>{NAME}/{NAME})", "https://huggingface.co/{hub}"),
    (
        r"PyTorch(?: [\d.]+)?, (?P<torch>(?:aten|torch)/[\w./-]*\w)",
        "https://github.com/pytorch/pytorch/blob/main/{torch}",
    ),
    (r"NCCL (?P<nccl>src/[\w./-]*\w)", "https://github.com/NVIDIA/nccl/blob/master/{nccl}"),
    (rf"(?P<at>{NAME}/{NAME})@(?P<commit>[0-9a-f]{{7,40}})", "https://github.com/{at}/tree/{commit}"),
    (rf"(?P<in>{NAME}/{NAME})#(?P<number>\d+)", "https://github.com/{in}/issues/{number}"),
    (rf"(?P<known>(?:{'|'.join(OWNERS)})/{NAME})(?![\w./@-])", "https://github.com/{known}"),
    (r"(?P<site>(?:[a-z0-9-]+\.)+(?:com|org|net|edu|technology|github\.io)(?:/[\w./-]*\w)?)(?!\w)", "https://{site}"),
)


def linked(text: str | Markup) -> Markup:
    """A text with its citations as links; what is marked up already keeps its elements, and has no links yet."""
    return Markup(_pattern().sub(_link_to, str(escape(text))))  # noqa: S704 - escaped


def address(citation: re.Match[str]) -> str:
    """Where what a source cites is to be found."""
    pattern = next(form for form in _forms() if citation[form[0]] is not None)
    return pattern[1].format(citation[0], **citation.groupdict())


@cache
def _pattern() -> re.Pattern[str]:
    """All citations in one pattern, each in a group of its own; none begins within a word or a path."""
    forms = (f"(?P<form{at}>{pattern})" for at, (pattern, _) in enumerate(CITATIONS))
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(forms)})")


@cache
def _forms() -> tuple[tuple[str, str], ...]:
    """The group of each form of citation, and its address."""
    return tuple((f"form{at}", address) for at, (_, address) in enumerate(CITATIONS))


def _link_to(citation: re.Match[str]) -> str:
    return f'<a class="out" href="{address(citation)}" rel="noreferrer">{citation[0]}</a>'


# --- the cache of compiled templates ---

COMPILED = Cache("templates")
MADE_BY = f"{sys.implementation.cache_tag}-{jinja2.__version__}"  # whose compiler, for whose byte code


class CompiledTemplates(BytecodeCache):
    """Byte code of the templates of one environment, by its `name`: another one compiles the same text otherwise.

    The cache is believed where it carries this user's mark, and Jinja holds what it reads to the template's text.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fills a bucket from the cache, where the cache has it."""
        content = COMPILED.read(self._entry(bucket))
        if content is not None:
            bucket.bytecode_from_string(content)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps the code of a bucket."""
        COMPILED.keep(self._entry(bucket), bucket.bytecode_to_string())

    def _entry(self, bucket: Bucket) -> str:
        return f"{self.name}-{MADE_BY}-{bucket.key}"
