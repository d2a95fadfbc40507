"""Events after an answer: the other decoders on the same turn, their table and charts, new settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..server import actions
from ..server.model_loader import ModelLoader
from ..server.session import Session
from ..server.sessions import Sessions
from ..targets.catalogue import bundled
from . import charts, settings, texts
from .charts import DECODER_NAMES
from .examples import Example, stand_in
from .uploads import read_image

Updates = dict[Any, Any]
"""Component -> its new value."""

Live = tuple[str, str, str]
"""What the page hears while a decoder runs: newest step, status line, table."""


class Compared:
    """The part of the page's handlers that compares; none of it touches the chat."""

    loader: ModelLoader
    sessions: Sessions
    examples: list[Example]
    parts: Any
    max_new_tokens: int

    def known(self, id_: str) -> Session | None:
        """The page's session, if there is one."""
        return self.sessions.get(id_) if id_ else None

    def compare(self, id_: str, chosen: list[str]) -> Iterator[Live]:
        """After an answer: the chosen decoders that have not run this turn; dear ones are left out."""
        yield from self._compare(id_, chosen, only_cheap=self.loader.name not in bundled())

    def compare_anew(self, id_: str, chosen: list[str]) -> Iterator[Live]:
        """On demand: all chosen decoders, dear ones too; then Recap with recording off, to tell what the
        trace costs."""
        session = self.known(id_)
        if session is None or not session.turns or not chosen:
            said = "Choose at least one decoder." if not chosen else "Ask something first."
            yield "", texts.status(said, kind="error"), texts.table_or_nothing(session)
            return
        yield from self._compare(id_, chosen, anew=True)
        if "recap" in chosen:
            actions.untraced(session)
        session.said = ("the chosen decoders have run on this turn", "done")

    def _compare(self, id_: str, chosen: list[str], **how: bool) -> Iterator[Live]:
        session = self.known(id_)
        yield self.unchanged(session)
        if session is None:
            return
        for progress in actions.compare(session, chosen, **how):
            name = DECODER_NAMES[progress.decoder]
            table = texts.table_or_nothing(session, running=f"{name}: {progress.phase}")
            yield progress.live, texts.status(*session.said), table

    def unchanged(self, session: Session | None) -> Any:
        """The status and the table as they stand: an event that yields nothing would empty them."""
        if session is None:
            return gr.skip(), gr.skip(), gr.skip()
        return "", texts.status(*session.said), texts.table_or_nothing(session)

    def again(self, id_: str, *changed: Any) -> Iterator[Live]:
        """Recap once more on the last turn, with the settings as they stand now."""
        session = self.known(id_)
        if session is None or not session.turns:
            yield "", texts.status("Ask something first.", kind="error"), texts.nothing()
            return
        session.configure(settings.read(changed))
        for progress in actions.again(session):
            table = texts.table_or_nothing(session, running=f"Recap: {progress.phase}")
            yield progress.live, texts.status(*session.said), table
        session.said = ("Recap ran again with these settings: see the table", "done")

    def needs_image(self, id_: str) -> Updates:
        """On demand: which tokens of the last answer another image would change."""
        p, session = self.parts, self.known(id_)
        try:
            paths = [path for r in session.turns for path in r.paths] if session else []
            other = stand_in(paths[-1], self.examples) if paths else None
            if session is None or not paths or other is None:
                raise ValueError("Ask something about an image first.")
            changed, tokens = actions.image_changes(session, read_image(other.path), other.title)
        except (ValueError, OSError) as error:
            said = (
                str(error) if isinstance(error, ValueError) else "The image is not there any more."
            )
            return {p.status: texts.status(said, kind="error")}
        said = f"with another image {changed} of these {tokens} tokens would be others: they are marked"
        session.said = (said, "done")
        return {p.trace: session.turns[-1].trace, p.status: texts.status(*session.said)}

    def compared(self, id_: str) -> Updates:
        """After a comparison: the session as it stands. A newer question shows itself."""
        session = self.known(id_)
        if session is None or session.pending or session.answering:
            return gr.skip()
        if not session.turns:
            return {self.parts.live: "", self.parts.status: texts.status(*session.said)}
        return self.everything(session) | {self.parts.status: texts.status(*session.said)}

    # ---- the session as components show it

    def turn(self, session: Session | None) -> Updates:
        """Tree and table of the last turn, and what room is left."""
        p = self.parts
        updates: Updates = {
            p.trace: session.turns[-1].trace if session and session.turns else "",
            p.live: "",
            p.results: texts.table_or_nothing(session),
        }
        if session is not None:
            used = len(session.conversation.ids)
            updates[p.room] = texts.room(session.target, used, self.max_new_tokens)
        return updates

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
        shown = record.runs[record.decoder]
        this = texts.measured(shown, n=f"1 turn, {shown.tokens} tokens")
        tokens = sum(r.runs[r.decoder].tokens for r in turns)
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
            with session.busy():
                session.forget()
        said = "all memories of this page are empty"
        if session is not None and session.area == "shared":
            said += "; the one that everybody shares stays"
        return {self.parts.status: texts.status(said, kind="done")}
