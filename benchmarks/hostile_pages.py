"""Writes everything that people open, of inputs that attack who opens it: pages, and comments as GitHub shows Markdown.

    python benchmarks/hostile_pages.py FOLDER    # then: scripts/hostile-pages FOLDER/*.html

Every text of a plan, of its model and device, of a table of runs, of evidence and of a lecture is an attack: elements,
handlers, addresses with a script in them, styles, and Markdown of the same.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPECS = ROOT / "specs"
HOST = "https://hostile.example"
RUN = "window.ran=1"  # what an attack does where it runs
ATTACKS = (
    f"<script>{RUN}</script>",
    f'"><img src={HOST}/i.png onerror={RUN}>',
    f"' onmouseover='{RUN}' autofocus onfocus='{RUN}' x='",
    f"<svg onload={RUN}><image href={HOST}/s.png /><use href={HOST}/s.svg#x /></svg>",
    f'<a href="javascript:{RUN}" id=theme>x</a>',
    f"<style>@import url({HOST}/a.css);body{{background:url({HOST}/b.png)}}</style>",
    f"</style><link rel=stylesheet href={HOST}/c.css><base href={HOST}/>",
    f"</script><script>{RUN}</script><!--",
    f'<iframe srcdoc="<script>parent.ran=1</script>"></iframe><object data={HOST}/o></object>',
    f"<meta http-equiv=refresh content='0;url={HOST}/'>",
    f"<form action={HOST}/><button autofocus onfocus={RUN}>x</button></form>",
    f"<iframe src='data:text/html,<script>{RUN}</script>'></iframe>",
    f"[x](javascript:{RUN}) ![x]({HOST}/m.png) [y](data:text/html,x)",
    f"<video src={HOST}/v poster={HOST}/p.png onerror={RUN}></video>",
    f"\\u003cscript>{RUN}\\u003c/script>${{{RUN}}}{{{{7*7}}}}",
    f"`{RUN}` | <details open ontoggle={RUN}> @someone #1",
    f"&lt;img src=x onerror={RUN}&gt; &#60;script&#62;{RUN}&#60;/script&#62;",
    f"a\"}};{RUN};//'}};{RUN};//",
)
TITLES = 190  # characters that a title may have
LAYOUTS = ("parallelism.zero=0,1", "run.micro_batch=4,12", "parallelism.tensor=1", "parallelism.pipeline=1")


def attacked(text: str, keys: str, attack: Callable[[], str]) -> str:
    """A spec in which the values of these keys are attacks; those on lines of their own, or within braces."""
    value = r"""(?:"[^"]*"|'[^']*'|>-\n(?:\s{4,}.*\n)+|[^\n{}]+?)"""
    pattern = re.compile(rf"(?P<key>(?:^|[{{,]|- )\s*(?:{keys}): ){value}(?=\s*(?:$|[}}]|, \w+:))", re.MULTILINE)
    return pattern.sub(lambda found: found["key"] + json.dumps(attack()), text)


def attacks() -> Callable[[], str]:
    """A further attack each time."""
    turn = cycle(ATTACKS)
    return lambda: next(turn)[:TITLES]


def inputs(folder: Path) -> None:
    """The hostile files: two plans with their parts, a table of runs, evidence, runs as evidence, a lecture."""
    attack = attacks()
    for kind, name, keys in (
        ("models", "gpt2", "model|source"),
        ("accelerators", "h100-sxm", "accelerator|source"),
        ("lecture", "examples", "lecture|about|source|asks|why"),
        ("evidence", "h100-sxm-send", "evidence|source|software|method|fabric"),
        ("evidence", "korthikanti-2022", "evidence|source|software|cluster|method|id"),
    ):
        text = attacked((SPECS / kind / f"{name}.yaml").read_text("utf-8"), keys, attack)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    plan = (SPECS / "gpt2.yaml").read_text("utf-8")
    for number, name in enumerate(("one", "two")):
        asked = "\n".join(
            (f"decision: {json.dumps(' '.join(ATTACKS[3 * number : 3 * number + 3])[:300])}", f"# {ATTACKS[7]}")
        )
        text = attacked(plan, "plan|source", attack).replace("model: gpt2", "model: gpt2.yaml")
        text = text.replace("accelerator: h100-sxm", "accelerator: h100-sxm.yaml").replace(
            "micro_batch: 12", f"micro_batch: {12 - 6 * number}"
        )
        price = json.dumps({"per_device_hour": "2.50 USD", "date": "2026-05", "source": " ".join(ATTACKS)})
        text = text.replace("mfu: 0.4", f"mfu: 0.4\n  price: {price}")
        (folder / f"{name}.yaml").write_text(f"{text}{asked}\n", encoding="utf-8")
    head, *rows = csv.reader((SPECS / "evidence" / "published-runs.csv").read_text("utf-8").splitlines())
    table = io.StringIO()
    out = csv.writer(table)
    out.writerow(head)
    for row, text in zip(rows, ATTACKS, strict=False):
        cells = dict(zip(head, row, strict=True)) | {
            "id": text,
            "notes": " ".join(ATTACKS),
            "source": text,
            "recompute": text,
        }
        out.writerow(cells.values())
    (folder / "runs.csv").write_text(table.getvalue(), encoding="utf-8")


def verb(folder: Path, *words: str) -> str:
    """What a verb prints in that folder; it may fail on what is refused."""
    environment = os.environ | {"LEDGER_SEARCH": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ledger", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(f"ledger {' '.join(words)}: {done.stderr}")
    return done.stdout


def changed(folder: Path) -> str:
    """The comment on a commit that makes a plan and its parts hostile, and adds one of a hostile name."""
    place = folder / "repository"
    git = ["git", "-C", str(place), "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    parts = ("models/gpt2.yaml", "accelerators/h100-sxm.yaml")
    hostile = (folder / "two.yaml").read_text("utf-8").replace(".yaml", "")
    commits = (
        {"a.yaml": (SPECS / "gpt2.yaml").read_text("utf-8")}
        | {f"specs/{part}": (SPECS / part).read_text("utf-8") for part in parts},
        dict.fromkeys(("a.yaml", "b<img src=x onerror=ran=1>@x.yaml"), hostile)
        | {f"specs/{part}": (folder / Path(part).name).read_text("utf-8") for part in parts},
    )
    place.mkdir()
    subprocess.run([*git, "init", "-q"], check=True)
    for files in commits:
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "c"], check=True)
    return verb(place, "ci", "--base", "HEAD~1", "--format", "md")


def as_shown(markdown: str) -> str:
    """Markdown as a page, with all the HTML that it may hold and no policy: worse than any service that shows it."""
    from markdown_it import MarkdownIt

    page = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title></head><body>{page}</body></html>'
    )


def pages(folder: Path) -> Iterator[Path]:
    """Writes the inputs and all that is made of them; the pages."""
    inputs(folder)
    for name in ("one.yaml", "examples.yaml"):
        verb(folder, "report", name, "--format", "html,md", "--out", ".")
    verb(folder, "compare", "one.yaml", "two.yaml", "--format", "html,md", "--out", ".")
    verb(folder, "sweep", "one.yaml", *(word for key in LAYOUTS for word in ("--over", key)), "--html", "sweep.html")
    verb(folder, "score", "runs.csv", "--out", "scored")
    verb(folder, "score", "korthikanti-2022.yaml", "--out", "scored")
    verb(folder, "calibrate", "h100-sxm-send.yaml", "--html", "calibration.html", "--out", "fitted.yaml")
    (folder / "diff.html").write_text(
        verb(folder, "diff", "one.yaml", "two.yaml", "--format", "html"), encoding="utf-8"
    )
    (folder / "diff.md").write_text(verb(folder, "diff", "one.yaml", "two.yaml", "--format", "md"), encoding="utf-8")
    (folder / "comment.md").write_text(changed(folder), encoding="utf-8")
    for path in folder.glob("*.md"):
        path.with_suffix(".md.html").write_text(as_shown(path.read_text("utf-8")), encoding="utf-8")
    for path in (folder / "scored").glob("*.html"):
        path.replace(folder / f"score-{path.name}")
    (folder / "unescaped.html").write_text(
        as_shown("\n\n".join(one for one in ATTACKS if "refresh" not in one)), encoding="utf-8"
    )
    yield from sorted(folder.glob("*.html"))


if __name__ == "__main__":
    for page in pages(Path(sys.argv[1])):
        print(page)
