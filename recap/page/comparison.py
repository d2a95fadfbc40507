"""Events after an answer: the other decoders on the same turn, their table and charts, new settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..server import actions
from ..server.model_loader import ModelLoader
from ..server.run import Run
from ..server.session import Session
from ..server.sessions import Sessions
from ..targets.catalogue import bundled
from ..targets.images import open_image
from . import charts, settings, texts
from .examples import Example, stand_in
from .names import DECODER_NAMES
from .view import Views

Updates = dict[Any, Any]
"""Component -> its new value."""

Live = tuple[str, str, str]
"""What the page hears while a decoder runs: newest step, status line, table."""


class Comparison:
    """The part of the page's handlers that compares; none of it touches the chat."""

    loader: ModelLoader
    sessions: Sessions
    views: Views
    examples: list[Example]
    parts: Any
    max_new_tokens: int

    def known(self, id_: str) -> Session | None:
        """The page's session, if there is one."""
        return self.sessions.get(id_) if id_ else None

    def compare(self, id_: str, chosen: list[str]) -> Iterator[Live]:
        """After an answer: the chosen decoders that have not run this turn; expensive ones are left out."""
        session = self.known(id_)
        yield self.unchanged(session)
        if session is not None and session.turns:
            only_cheap = self.loader.name not in bundled()
            run = actions.compare(session, chosen, only_cheap=only_cheap)
            yield from self._follow(session, run)

    def compare_again(self, id_: str, chosen: list[str]) -> Iterator[Live]:
        """On demand: all chosen decoders, expensive ones too, and what recording costs."""
        session = self.known(id_)
        if session is None or not session.turns or not chosen:
            message = "Ask something first." if chosen else "Choose at least one decoder."
            yield "", texts.status(message, kind="error"), texts.table_or_nothing(session)
            return
        run = actions.compare(session, chosen, again=True)
        yield from self._follow(session, run, "the chosen decoders have run on this turn")

    def compare_settings(self, id_: str, *changed: Any) -> Iterator[Live]:
        """Recap once more on the last turn, with the settings as they stand now."""
        session = self.known(id_)
        if session is None or not session.turns:
            yield "", texts.status("Ask something first.", kind="error"), texts.nothing()
            return
        session.configure(settings.read(changed))
        run = actions.compare_settings(session)
        yield from self._follow(session, run, "Recap ran again with these settings: see the table")

    def _follow(self, session: Session, run: Run, done: str = "") -> Iterator[Live]:
        """Render a comparison; `done` is the status line at its end."""
        view = self.views.of(session)
        try:
            for progress in run.follow():
                name = DECODER_NAMES.get(progress.decoder, "comparison")
                table = texts.table_or_nothing(session, running=f"{name}: {progress.phase}")
                yield progress.live, texts.status(*view.status), table
            if done:
                view.status = (done, "done")
        except ValueError as error:
            view.status = (str(error), "error")
            yield "", texts.status(*view.status), texts.table_or_nothing(session)

    def unchanged(self, session: Session | None) -> Any:
        """The status and the table as they stand: an event that yields nothing would empty them."""
        if session is None:
            return gr.skip(), gr.skip(), gr.skip()
        return "", texts.status(*self.views.of(session).status), texts.table_or_nothing(session)

    def needs_image(self, id_: str) -> Updates:
        """On demand: which tokens of the last answer another image would change."""
        p, session = self.parts, self.known(id_)
        paths = [path for turn in session.turns for path in turn.paths] if session else []
        try:
            other = stand_in(paths[-1], self.examples) if paths else None
            if session is None or other is None:
                raise ValueError("Ask something about an image first.")
            actions.swap_image(session, open_image(other.path), other.title).result()
        except (ValueError, OSError) as error:
            gone = "The image is not there any more: upload it again."
            message = str(error) if isinstance(error, ValueError) else gone
            return {p.status: texts.status(message, kind="error")}
        record = session.turns[-1]
        changed, tokens = sum(record.swapped), len(record.swapped)
        different = f"{changed} of these {tokens} tokens would be different: they are marked"
        none = f"none of these {tokens} tokens would be different"
        self.views.of(session).status = (
            f"with another image {different if changed else none}",
            "done",
        )
        return self.trace(session) | {p.status: texts.status(*self.views.of(session).status)}

    def compared(self, id_: str) -> Updates:
        """After a comparison: the session as it stands. A newer question shows itself."""
        session = self.known(id_)
        if session is None or not self.views.of(session).is_newest(session):
            return gr.skip()
        status = texts.status(*self.views.of(session).status)
        if not session.turns:
            return {self.parts.live: "", self.parts.status: status}
        return self.everything(session) | {self.parts.status: status}

    # ---- the session as components show it

    def turn(self, session: Session | None) -> Updates:
        """Tree and table of the last turn, and what room is left."""
        p = self.parts
        updates = self.trace(session)
        updates |= {p.live: "", p.results: texts.table_or_nothing(session)}
        if session is not None:
            used = len(session.conversation.ids)
            updates[p.room] = texts.room(session.target, used, self.max_new_tokens)
        return updates

    def trace(self, session: Session | None) -> Updates:
        """What the page lacks of the last turn's trace."""
        lines = "" if session is None else self.views.of(session).trace(session)
        return {} if lines is None else {self.parts.trace: lines}

    def everything(self, session: Session | None) -> Updates:
        """Tree, table and charts; charts without a turn are hidden: an empty one is noise to a screen
        reader."""
        p = self.parts
        updates = self.turn(session)
        figures = self.figures(session) if session and session.turns else {}
        for plot in (p.levels, p.levels_all, p.speed, p.accepted, p.warming):
            figure = figures.get(plot)
            updates[plot] = gr.update(value=figure, visible=figure is not None)
        return updates

    def figures(self, session: Session) -> Updates:
        """The charts of the last turn and of the conversation."""
        p, record, turns = self.parts, session.turns[-1], session.turns
        shown = record.answer
        this = texts.measured(shown, n=f"1 turn, {shown.tokens} tokens")
        tokens = sum(turn.answer.tokens for turn in turns)
        whole = texts.measured(shown, n=f"{texts.count(len(turns), 'turn')}, {tokens} tokens")
        found: Updates = {
            p.speed: charts.speed_chart(record.paces, measured=this),
            p.accepted: charts.accepted_chart(turns, measured=whole),
        }
        if len(turns) > 1:  # one point is no course
            found[p.warming] = charts.warming_chart(turns, measured=whole)
        if charts.level_counts([record]):
            found[p.levels] = charts.levels_chart([record], measured=this, title="This turn")
        both = [r for r in turns if {"recap", "token_recycling"} <= r.runs.keys()]
        if len(both) > 1:
            tokens = sum(r.runs["recap"].tokens for r in both)
            n = f"{len(both)} turns that both ran, {tokens} tokens"
            said = texts.measured(shown, n=n)
            found[p.levels_all] = charts.levels_chart(
                both, measured=said, title="This conversation"
            )
        return found

    def forget(self, id_: str) -> Updates:
        """Empty every memory of this session."""
        session = self.known(id_)
        if session is not None:
            with session.taken_over():
                session.forget()
        message = "all memories of this page are empty"
        if session is not None and session.scope == "shared":
            message += "; the one that everybody shares stays"
        return {self.parts.status: texts.status(message, kind="done")}
