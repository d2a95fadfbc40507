"""Texts and small tables of the page, as HTML. Whatever comes from a model or a person is escaped."""

from __future__ import annotations

from html import escape

from ..compare import Divergence, first_difference
from ..server.actions import compared_tokens, reference_of, shown_runs
from ..server.session import Session, TurnRecord
from ..targets import images
from ..targets.base import Target
from ..targets.hardware import cpu_threads, processor
from ..trace import Turn
from .names import DECODER_NAMES

HEADER = """
<header class="rc-head">
  <h1>Recap</h1>
  <p>A vision-language model answers, and you see how: each <dfn>step</dfn> of the model checks a whole tree of
  guessed tokens at once and keeps the branch that it would have written itself. The guesses are recalled from its
  own earlier predictions; the text stays the same.</p>
</header>
"""

_LIMITS = """
<p><strong>The model here is the {name}</strong>, a few million parameters, trained on drawn images
only. It knows simple scenes (shapes, colours, places, counts), signs, receipts and menus, tables, and bar, line and
pie charts, in English. Asked whether something is there or how many of a kind there are, it lists what it sees; asked
about what is not there, it makes something up. It was taught in short conversations and loses the thread in long
ones. Most photographs it refuses. Its speed says nothing about a large
model.</p>
"""

_LINE = """
<div class="rc-knows"><strong>{name}</strong>, trained on drawn images alone: simple scenes, signs, receipts, menus,
tables, bar, line and pie charts, in English. No photographs, and it may be wrong.</div>
"""

# By the names of the models that the repository brings along.
DEMO_LIMITS = {
    "demo": _LIMITS.format(name="embedded demo model"),
    "demo-llava": _LIMITS.format(name="LLaVA demo model")
    + "<p>It reads prices and the words on signs less well than the demo model itself.</p>\n",
}
DEMO_LINES = {
    "demo": _LINE.format(name="Demo model"),
    "demo-llava": _LINE.format(name="LLaVA demo model"),
}


def glossary(words: dict[str, str]) -> str:
    """A list of words and what they mean."""
    entries = (f"<div><dt>{word}</dt><dd>{meaning}</dd></div>" for word, meaning in words.items())
    return f'<dl class="rc-words">{"".join(entries)}</dl>'


MEMORY_WORDS = glossary({
    "look-up": "a place in a tree where a source was asked which token comes next",
    "hit": "a look-up that the source had an answer to",
    "accepted hit": "a hit with a token that stood in the tree and that the model then confirmed",
})  # fmt: skip

WORDS = glossary({
    "token": "the piece of text that a model writes at a time: a word, a part of one, or a sign",
    "step": "one run of the model over several tokens at once; one token at a time needs a step for each",
    "guess": "a token that is proposed before a step, so that the step can check several at once",
    "tree": "the guesses of one step: each branch is one way in which the text may go on",
    "accepted": "guesses that are what the model itself would have written next, from the last confirmed token on",
    "memory": "what the model predicted earlier after the same one, two or three tokens",
    "lookup": "what followed the longest earlier match of the text's end, in the prompt or in the answer",
    "second choice": "a token that was likely one place earlier and was not chosen there",
    "entropy": "how evenly a stored prediction is spread over its tokens, in % of the most; confidence is the rest to 1",
    "prompt": "everything the model reads before it answers: the image, the question, and what came before",
    "context": "the most tokens that prompt and answer can have together",
})  # fmt: skip
WORDS = f'<details class="rc-glossary"><summary>Words on this page</summary>{WORDS}</details>'

BRIEF_S = 0.3
"""Decoding that took less says little about speed."""

KNOWS = "Pick an example above, or upload an image, and ask."

ECHO = '<p class="rc-echo rc-soft" aria-hidden="true"></p>'
"""Where assets/page.js repeats the status line, next to buttons that stand far below it."""


def status(text: str, kind: str = "") -> str:
    """The status line. kind: "" during work, "done" or "error" at its end (a screen reader then speaks it)."""
    role = ' role="status"' if kind else ""
    return f'<div class="rc-status {kind}"{role}>{escape(text)}</div>'


def model_line(target: Target, seconds: float, note: str = "") -> str:
    """One line on the model that answers; `note` stands before it if it is not the one that was asked for."""
    before = status(note, kind="error") if note else ""
    context = f"context {target.max_context:,} tokens"
    about = " · ".join([target.name, hardware(target.device), target.dtype, context])
    return (
        f'{before}<div class="rc-model"><span class="rc-dot"></span>{escape(about)}<span class="rc-soft"> · '
        f"loaded in {seconds:.1f} s</span>{DEMO_LINES.get(target.name, '')}</div>"
    )


def hardware(device: str) -> str:
    """The device in words: a GPU's name, or the CPU threads in use."""
    if device == "cpu":
        return f"{device}, {count(cpu_threads(), 'thread')}"
    return processor(device)


def measured(turn: Turn, *, n: str) -> str:
    """What every chart says it was measured on."""
    return f"n = {n}; {turn.model}; {hardware(turn.device)}; {turn.dtype}; greedy"


def count(n: int, one: str) -> str:
    """
    >>> count(1, "turn"), count(2, "turn")
    ('1 turn', '2 turns')
    """
    return f"{n} {one if n == 1 else one + 's'}"


def verbatim(text: str) -> list[dict[str, str]]:
    """A chat message's content that shows the text exactly as it is: the chat renders markdown, and in
    markdown a character reference is never markup.

    >>> verbatim("a *b*")
    [{'type': 'text', 'text': 'a&#32;&#42;b&#42;'}]
    """
    kept = (c if c.isalnum() or ord(c) > 127 else f"&#{ord(c)};" for c in text)
    return [{"type": "text", "text": "".join(kept)}] if text else []


def room(target: Target, used: int, longest: int) -> str:
    """How much of the context is left, and how large an image may be."""
    left = max(0, target.max_context - used)
    text = f"{used:,} of {target.max_context:,} tokens of the context are in use"
    if left < 8:
        text += ": start a new chat to go on"
    elif left < 2 * longest:
        text += f": question and answer together can have {left:,} more, then start a new chat"
    else:
        text += f"; an answer can have {longest:,}"
    files = ""
    if target.sees_images:
        most = images.limits()
        files = f" Images: {most.bytes / 1e6:.0f} MB and {most.pixels / 1e6:.0f} million pixels at most."
    return f'<p class="rc-context rc-soft" data-left="{left}">{text}.{files}</p>'


def soft(sentence: str, more: str = "") -> str:
    """A paragraph of lesser weight; more: a further class of it."""
    return f'<p class="rc-soft{more}">{sentence}</p>'


def identical_line(record: TurnRecord) -> str:
    """ "identical output: yes", or where the first difference is and how close the choice was there."""
    name, limit, runs = reference_of(record), compared_tokens(record), shown_runs(record)
    reference = record.runs[name]
    if len(runs) < 2:
        return '<p class="rc-same">identical output: not compared yet</p>'
    wrong = []
    for decoder, turn in runs.items():
        place = first_difference(turn.token_ids[:limit], reference.token_ids[:limit])
        if place is not None:
            found = record.divergences.get(decoder, Divergence(place + 1))
            wrong.append(f"{DECODER_NAMES.get(decoder, 'new settings')}: {differs(found)}")
    if not wrong:
        return f'<p class="rc-same rc-yes"><strong>identical output: yes</strong> ({len(runs)} runs, token for token)</p>'
    rounding = " Steps of other sizes round differently in this dtype, which can decide near ties."
    return (
        f'<p class="rc-same rc-no"><strong>identical output: no</strong> ({escape("; ".join(wrong))}; '
        f"compared with {DECODER_NAMES[name]}).{'' if reference.dtype == 'float32' else rounding}</p>"
    )


def differs(found: Divergence) -> str:
    """The first difference in words.

    >>> differs(Divergence(37, 0.0021))
    'first difference at token 37, margin 0.0021 between the two logits'
    """
    margin = (
        f", margin {found.logits:.2g} between the two logits" if found.logits is not None else ""
    )
    return f"first difference at token {found.place}{margin}"


def table_or_nothing(session: Session | None, running: str = "") -> str:
    """The last turn's table, or the sentence in its place before the first answer."""
    if session is None or not session.turns:
        return nothing()
    now = soft(f"now: {escape(running)}", " rc-wait") if running else ""
    return results_table(session.turns[-1]) + now


def results_table(record: TurnRecord) -> str:
    """decoder | tokens | steps | tokens per step | tokens/s, and what can be concluded from it."""
    plain = record.runs.get("autoregressive")
    marks = {"again": " (new settings)", record.decoder: " (this answer)"}
    if record.runs[record.decoder] is not record.answer:
        marks[record.decoder] = " (this answer, run again)"
    rows = []
    for decoder, turn in shown_runs(record).items():
        ratio = (
            f"{turn.tokens_per_s / plain.tokens_per_s:.2f} ×"
            if plain and plain.tokens_per_s
            else ""
        )
        name, mark = DECODER_NAMES.get(decoder, "Recap"), marks.get(decoder, "")
        rows.append(
            f"<tr><th scope='row'>{name}<span class='rc-soft'>{mark}</span></th><td>{turn.tokens}</td>"
            f"<td>{turn.passes}</td><td>{turn.tokens_per_pass:.2f}</td><td>{turn.tokens_per_s:.0f}</td>"
            f"<td>{ratio}</td></tr>"
        )
    columns = ("decoder", "tokens", "steps", "tokens per step", "tokens/s", "speed")
    head = "".join(f"<th scope='col'>{column}</th>" for column in columns)
    return (
        f'<table class="rc-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        f"{identical_line(record)}{verdict(record)}{tracing_line(record)}{order_line(record)}"
    )


def order_line(record: TurnRecord) -> str:
    """How the figures were measured."""
    if len(record.order) < 2:
        return ""
    names = ", ".join(DECODER_NAMES[name] for name in record.order if name in DECODER_NAMES)
    return soft(
        f"One after the other, in this order: {names}. Each from the same state, reading the prompt left out, "
        "with the trace and this page's updates on."
    )


def tracing_line(record: TurnRecord) -> str:
    """What recording the trace costs, if Recap ran both with and without it."""
    off, on = record.runs.get("untraced"), record.runs.get("recap")
    if not (off and on and off.tokens_per_s and on.tokens_per_s):
        return ""
    return soft(
        f"With the trace off and without this page's updates, Recap made {off.tokens_per_s:.0f} tokens/s, with "
        f"them {on.tokens_per_s:.0f} (one run each)."
    )


def verdict(record: TurnRecord) -> str:
    """Plain sentences on which decoder was fastest in this turn, Recap or not."""
    runs = {k: t for k, t in record.runs.items() if t.passes and k in DECODER_NAMES}
    recap, table = runs.get("recap"), runs.get("token_recycling")
    if recap is None or table is None:
        return ""
    sentences = [f"Recap needed {count(recap.passes, 'step')}, Token Recycling {table.passes}."]
    fastest = max(runs, key=lambda name: runs[name].tokens_per_s)
    if fastest == "recap":
        sentences.append("Recap was the fastest in this turn.")
    else:
        speeds = f"{runs[fastest].tokens_per_s:.0f} tokens/s against {recap.tokens_per_s:.0f}"
        sentences.append(
            f"On this machine and turn, {DECODER_NAMES[fastest]} was the fastest: {speeds}."
        )
    if recap.decode_s < BRIEF_S:
        sentences.append(
            "One short run each: another run may well reverse the order of the speeds."
        )
    return soft(" ".join(sentences))


def waiting() -> str:
    """In place of the table during an answer."""
    return soft("The other decoders run on this turn as soon as the answer is done.", " rc-wait")


def nothing() -> str:
    """In place of the table before the first answer."""
    sentence = "After an answer, the other decoders run on the same turn, from the same state."
    return soft(sentence, " rc-wait")


def notes(target: Target, *more: str) -> str:
    """`more` sentences, and what the target's loader changed for losslessness, as a list."""
    items = "".join(f"<li>{escape(note)}</li>" for note in (*more, *target.notes) if note)
    return f"<ul class='rc-notes'>{items}</ul>" if items else ""
