"""Citations as links: what a source says of where it is to be found, as an address that a reader can follow.

An address, an arXiv number and a DOI name a publication by themselves, `owner/repository@commit` and
`owner/repository#number` a place on GitHub. `owner/repository` alone looks like a folder: its owner must be known.
"""

from __future__ import annotations

import re
from functools import cache

from markupsafe import Markup, escape

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
    return Markup(_pattern().sub(_link, str(escape(text))))  # noqa: S704 - escaped


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


def _link(citation: re.Match[str]) -> str:
    return f'<a class="out" href="{address(citation)}" rel="noreferrer">{citation[0]}</a>'
