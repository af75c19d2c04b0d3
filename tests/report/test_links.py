from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledger.report.html import coded, linked

LIBRARY = Path(__file__).parents[2] / "specs"
ADDRESS = re.compile(r'<a class="out" href="([^"]*)" rel="noreferrer">([^<]*)</a>')


@pytest.mark.parametrize(
    ("source", "said", "address"),
    [
        ("https://example.org/a?b=1.", "https://example.org/a?b=1", "https://example.org/a?b=1"),
        (
            "Rajbhandari et al. 2020 (ZeRO), arXiv 1910.02054, section 3.1",
            "arXiv 1910.02054",
            "arxiv.org/abs/1910.02054",
        ),
        ("Micikevicius et al. (arXiv:1710.03740)", "arXiv:1710.03740", "arxiv.org/abs/1710.03740"),
        (
            "Patterson, doi 10.1109/MC.2022.3148714; table 2",
            "doi 10.1109/MC.2022.3148714",
            "doi.org/10.1109/MC.2022.3148714",
        ),
        ("microsoft/vidur@7d47513, rotary", "microsoft/vidur@7d47513", "github.com/microsoft/vidur/tree/7d47513"),
        ("pytorch/pytorch#87445, FP16", "pytorch/pytorch#87445", "github.com/pytorch/pytorch/issues/87445"),
        ("coreweave/nccl-tests README", "coreweave/nccl-tests", "github.com/coreweave/nccl-tests"),
        ("config.json of Qwen/Qwen3-8B; a paper", "Qwen/Qwen3-8B", "huggingface.co/Qwen/Qwen3-8B"),
        ("mercatus-ai.com/blog/prices, clouds", "mercatus-ai.com/blog/prices", "mercatus-ai.com/blog/prices"),
        (
            "PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp: a workspace",
            "PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp",
            "github.com/pytorch/pytorch/blob/main/aten/src/ATen/cuda/CublasHandlePool.cpp",
        ),
    ],
)
def test_what_names_a_place_is_a_link_to_it(source: str, said: str, address: str) -> None:
    """Addresses, numbers of papers, repositories and model cards: a reader gets there without typing."""
    found = ADDRESS.findall(str(linked(source)))
    assert found == [(address if address.startswith("https://") else f"https://{address}", said)]


@pytest.mark.parametrize(
    "text",
    [
        "specs/evidence/h100-sxm-nccl.yaml",
        "365.9 GB/s of 400 GB/s",
        "forward/loss",
        "torch/optim/adam.py",
        "ZeRO-3",
        "3.5.2",
    ],
)
def test_paths_and_units_are_no_links(text: str) -> None:
    """A slash or a point alone names no place on the web."""
    assert str(linked(text)) == text


def test_what_stands_around_a_citation_is_escaped() -> None:
    """A source is text of the user: it brings no elements, and its own marks do not end the address."""
    assert str(linked('<b> arXiv 1910.02054 "')) == (
        '&lt;b&gt; <a class="out" href="https://arxiv.org/abs/1910.02054" rel="noreferrer">arXiv 1910.02054</a> &#34;'
    )
    assert "&lt;script" in str(linked("https://example.org/<script>"))


def test_keys_and_citations_share_a_sentence() -> None:
    """Backticks become code, citations links, and neither spoils the other."""
    found = str(coded("`stack.launch`: 18 us in NVIDIA/dgxc-benchmarking@841f546"))
    assert found.startswith("<code>stack.launch</code>")
    assert ADDRESS.findall(found)


def test_every_repository_that_the_library_cites_is_a_link() -> None:
    """A new owner on GitHub must be listed, or be cited with a commit."""
    texts = [path.read_text(encoding="utf-8") for path in LIBRARY.glob("*/*.yaml")]
    cited = {
        found
        for text in texts
        for found in re.findall(
            r"^publication: .*\nsource: \"?([A-Za-z][\w-]+/[A-Za-z][\w-]+)(?=[ ,@\n])", text, re.MULTILINE
        )
    }
    assert len(cited) > 3
    assert [name for name in sorted(cited) if not ADDRESS.findall(str(linked(name)))] == []
