"""Words and small tables of the page, as HTML. Whatever comes from a model or a person is escaped."""

from __future__ import annotations

from html import escape

from ..session import TurnRecord
from ..targets.base import Target
from ..trace import Turn
from .charts import DECODER_NAMES

HEADER = """
<header class="rc-head">
  <h1>Recap</h1>
  <p>A vision-language model answers, and you see how: each pass checks a whole tree of guessed tokens at once and keeps
  the branch that the model would have written itself. The guesses are recalled from its own earlier predictions; the text
  that comes out stays the same.</p>
</header>
"""

DEMO_LIMITS = """
<p><strong>The model here is the embedded demo model</strong>, a few million parameters, trained on drawn images
only. It knows simple scenes (shapes, colours, places, counts), signs, receipts and menus, tables, and bar, line and
pie charts, in English. It does not know photographs and says so. Its speed says nothing about a large model.</p>
"""

WORDS = """
<dl class="rc-words">
  <div><dt>look-up</dt><dd>a place in a tree where a memory level was asked which token comes next</dd></div>
  <div><dt>hit</dt><dd>a look-up to which that level had an answer</dd></div>
  <div><dt>accepted hit</dt><dd>a hit with a token that stood in the tree and that the model then confirmed</dd></div>
</dl>
"""

DEMO_LINE = """
<div class="rc-knows"><strong>Demo model</strong>, trained on drawn images alone: it knows simple scenes, signs, receipts, menus,
tables, and bar, line and pie charts, in English. It does not know photographs, and may be wrong.</div>
"""

KNOWS = "Pick an example above, or upload an image, and ask."


def status(text: str, *, kind: str = "") -> str:
    """The phase line. kind "" while work goes on, "done" or "error" at its end (then it is spoken)."""
    role = ' role="status"' if kind else ""
    return f'<div class="rc-status {kind}"{role}>{escape(text)}</div>'


def model_line(target: Target, seconds: float) -> str:
    """One line on what answers here."""
    parts = [
        target.name,
        hardware(target.device),
        target.dtype,
        f"context {target.max_context:,} tokens",
    ]
    return (
        f'<div class="rc-model"><span class="rc-dot"></span>{escape(" · ".join(parts))}'
        f"<span class='rc-soft'> · ready after {seconds:.1f} s</span>"
        f"{DEMO_LINE if target.name == 'demo' else ''}</div>"
    )


def hardware(device: str) -> str:
    """What computes: a GPU's name, or the CPU threads in use."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{device}, {torch.get_num_threads()} threads"


def measured(turn: Turn, *, n: str) -> str:
    """What stands under every chart."""
    return f"n = {n}; {turn.model}; {hardware(turn.device)}; {turn.dtype}; greedy"


def reference_of(record: TurnRecord) -> tuple[str, Turn]:
    """The run that the others are compared with: plain decoding, else the answer itself."""
    name = "autoregressive" if "autoregressive" in record.runs else record.decoder
    return name, record.runs[name]


def compared_tokens(record: TurnRecord) -> int | None:
    """A stopped or shortened answer is compared as far as it goes; None is the whole answer."""
    shown = record.runs[record.decoder]
    return None if shown.finish_reason == "eos" else shown.tokens


def first_difference(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    """The place (from 1) of the first token that differs, None if there is none.

    >>> first_difference((1, 2, 3), (1, 2, 3)), first_difference((1, 2), (1, 5))
    (None, 2)
    >>> first_difference((1, 2), (1, 2, 3))
    3
    """
    if a == b:
        return None
    for place, (x, y) in enumerate(zip(a, b, strict=False), start=1):
        if x != y:
            return place
    return min(len(a), len(b)) + 1


def identical_line(record: TurnRecord) -> str:
    """ "identical output: yes", or where the first difference is."""
    name, reference = reference_of(record)
    limit = compared_tokens(record)
    wrong = []
    for decoder, turn in record.runs.items():
        place = first_difference(turn.token_ids[:limit], reference.token_ids[:limit])
        if decoder != name and place is not None:
            wrong.append(f"{DECODER_NAMES[decoder]}: first difference at token {place}")
    against = DECODER_NAMES[name]
    n = len(record.runs)
    if n < 2:
        return '<p class="rc-same">identical output: not compared yet</p>'
    if wrong:
        return f'<p class="rc-same rc-no"><strong>identical output: no</strong> ({escape("; ".join(wrong))}; compared with {against})</p>'
    return f'<p class="rc-same rc-yes"><strong>identical output: yes</strong> ({n} decoders, token for token)</p>'


def results_table(record: TurnRecord) -> str:
    """decoder | tokens | passes | tokens per pass | tokens/s, and the honest sentence under it."""
    plain = record.runs.get("autoregressive")
    runs = {name: record.runs[name] for name in DECODER_NAMES if name in record.runs}
    if record.again is not None:
        runs["again"] = record.again
    rows = []
    for decoder, turn in runs.items():
        mark = ' <span class="rc-soft">(this answer)</span>' if decoder == record.decoder else ""
        if decoder == "again":
            mark = ' <span class="rc-soft">(new settings)</span>'
        ratio = ""
        if plain is not None and plain.tokens_per_s:
            ratio = f"{turn.tokens_per_s / plain.tokens_per_s:.2f} ×"
        name = DECODER_NAMES.get(decoder, "Recap")
        rows.append(
            f"<tr><th scope='row'>{name}{mark}</th><td>{turn.tokens}</td><td>{turn.passes}</td>"
            f"<td>{turn.tokens_per_pass:.2f}</td><td>{turn.tokens_per_s:.0f}</td><td>{ratio}</td></tr>"
        )
    head = "".join(
        f"<th scope='col'>{h}</th>"
        for h in ("decoder", "tokens", "passes", "tokens a pass", "tokens/s", "speed")
    )
    return (
        f'<table class="rc-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        f"{identical_line(record)}{verdict(record)}{tracing_line(record)}"
    )


def tracing_line(record: TurnRecord) -> str:
    """What recording the trace costs, if Recap ran both with and without it."""
    off, on = record.untraced, record.runs.get("recap")
    if off is None or on is None or not on.tokens_per_s or not off.tokens_per_s:
        return ""
    return (
        f'<p class="rc-soft">With the trace off, Recap made {off.tokens_per_s:.0f} tokens/s, with it {on.tokens_per_s:.0f} '
        "(one run each; drawing the page is never part of the time).</p>"
    )


def verdict(record: TurnRecord) -> str:
    """One plain sentence on who was faster in this turn; says so when Recap loses."""
    runs = {k: t for k, t in record.runs.items() if t.passes}
    recap, table = runs.get("recap"), runs.get("token_recycling")
    if recap is None or table is None:
        return ""
    fastest = max(runs, key=lambda name: runs[name].tokens_per_s)
    passes = (
        f"Recap needed {recap.passes} passes, Token Recycling {table.passes}."
        if recap.passes != table.passes
        else f"Recap and Token Recycling both needed {recap.passes} passes."
    )
    if fastest == "recap":
        return f'<p class="rc-soft">{passes} Recap was the fastest in this turn.</p>'
    return (
        f'<p class="rc-soft">{passes} On this machine and turn, {DECODER_NAMES[fastest]} was the fastest: '
        f"{runs[fastest].tokens_per_s:.0f} tokens/s against {recap.tokens_per_s:.0f}.</p>"
    )


def waiting() -> str:
    """In place of the table while an answer is being made."""
    return '<p class="rc-soft rc-wait">The other decoders run on this turn as soon as the answer is done.</p>'


def nothing() -> str:
    """In place of the table before the first answer."""
    return '<p class="rc-soft rc-wait">After an answer, the other decoders run on the same turn, from the same state.</p>'


def notes(target: Target) -> str:
    """What the target's loader changed for losslessness, as a list."""
    items = "".join(f"<li>{escape(note)}</li>" for note in target.notes)
    return f"<ul class='rc-notes'>{items}</ul>" if items else ""
