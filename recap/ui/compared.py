"""Events after an answer: the other decoders on the same turn, their table and charts, new settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..service import ModelLoader, Sessions
from ..session import Session, TurnRecord
from . import charts, settings, texts, work

Updates = dict[Any, Any]
"""Component -> its new value."""


class Compared:
    """The part of the page's handlers that compares; none of it touches the chat."""

    loader: ModelLoader
    sessions: Sessions
    parts: Any

    def compare(self, id_: str) -> Iterator[Updates]:
        """After an answer: the other decoders on the same turn; the chat is not touched."""
        yield from self._compare(id_, only_cheap=self.loader.name != "demo")

    def compare_all(self, id_: str) -> Iterator[Updates]:
        """The same, dear runs included; then Recap with recording off, to tell what the trace costs."""
        p = self.parts
        yield {p.status: texts.status("the other decoders run on this turn")}
        yield from self._compare(id_, only_cheap=False)
        session = self.sessions.get(id_) if id_ else None
        if session is not None and session.turns:
            work.untraced(session)
            record = session.turns[-1]
            done = texts.status("every decoder has run on this turn", kind="done")
            yield {p.results: texts.results_table(record), p.status: done}

    def _compare(self, id_: str, *, only_cheap: bool) -> Iterator[Updates]:
        p = self.parts
        session = self.sessions.get(id_) if id_ else None
        if session is None or not session.turns:
            yield {p.results: texts.nothing()}
            return
        record = session.turns[-1]
        for progress in work.compare(session, only_cheap=only_cheap):
            update: Updates = {p.trace: progress.trace}
            if progress.turn is not None:
                update[p.results] = texts.results_table(record)
            yield update
        yield self.results(session, record)

    def results(self, session: Session, record: TurnRecord) -> Updates:
        """Table, verdict and charts of the last turn and of the conversation."""
        p = self.parts
        shown = record.runs[record.decoder]
        turns = len(session.turns)
        this = texts.measured(shown, n=f"1 turn, {shown.tokens} tokens")
        tokens = sum(r.runs[r.decoder].tokens for r in session.turns)
        turns_word = "1 turn" if turns == 1 else f"{turns} turns"
        whole = texts.measured(shown, n=f"{turns_word}, {tokens} tokens")
        updates: Updates = {
            p.results: texts.results_table(record),
            p.speed: shown_plot(charts.speed_chart(record.paces, measured=this)),
            p.accepted: shown_plot(charts.accepted_chart(session.turns, measured=whole)),
            p.warming: shown_plot(charts.warming_chart(session.turns, measured=whole)),
        }
        if charts.level_counts(record.runs):
            updates[p.levels] = shown_plot(charts.levels_chart(record.runs, measured=this))
        return updates

    def again(self, id_: str, *changed: Any) -> Iterator[Updates]:
        """Recap once more on the last turn, with the settings as they stand now."""
        p = self.parts
        session = self.sessions.get(id_) if id_ else None
        if session is None or not session.turns:
            yield {p.status: texts.status("Ask something first.", kind="error")}
            return
        session.configure(settings.read(changed))
        record = session.turns[-1]
        for progress in work.again(session):
            yield {p.trace: progress.trace}
        said = "Recap ran again with these settings: see the table"
        yield {
            p.results: texts.results_table(record),
            p.speed: charts.speed_chart(
                record.paces, measured=texts.measured(record.runs[record.decoder], n="1 turn")
            ),
            p.status: texts.status(said, kind="done"),
        }

    def forget(self, id_: str) -> Updates:
        """Empty every memory of this session."""
        session = self.sessions.get(id_) if id_ else None
        if session is not None:
            with session.busy():
                session.forget()
        return {self.parts.status: texts.status("all memories of this page are empty", kind="done")}


def shown_plot(figure: Any) -> gr.Plot:
    """A chart filled for the first time becomes visible: an empty one is noise to a screen reader."""
    return gr.Plot(value=figure, visible=True)
