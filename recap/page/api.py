"""Named endpoints for `gradio_client`: /chat, /compare and /clear. A client is a session of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from ..drafters import DECODERS
from ..server import actions
from ..server.model_loader import NotReadyError
from ..server.queue import QueueFullError
from ..server.session import Session, TurnRecord
from . import messages
from .handlers import Handlers

LOAD_S = 600.0
"""A client waits this long for a model that is still loading."""


class Api:
    """The endpoints' functions over the page's handlers."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers

    def session(self, request: gr.Request) -> Session:
        """The client's session, made at its first question."""
        sessions, loader = self.handlers.sessions, self.handlers.loader
        owner, user = request.session_hash or "", request.username or ""
        loader.wait(LOAD_S)
        try:
            known = sessions.of_owner(owner)
            if known is not None and known.user == user:
                return known
            return sessions.new(loader.target, owner=owner, user=user, cost=loader.cost)
        except (NotReadyError, QueueFullError) as error:
            raise gr.Error(str(error), print_exception=False) from None

    def chat(
        self, message: dict[str, Any], decoder: str, request: gr.Request
    ) -> Iterator[dict[str, Any]]:
        """Ask the next question of this client's conversation.

        message: {"text": the question, "files": image files, new ones only}. decoder: one of DECODERS.
        Yields {"text": so far} and at the end the whole turn: text, token_ids, tokens, passes,
        tokens_per_pass, tokens_per_s, sources, queue_s (its wait in the queue), wait_s (for the device) and more.
        """
        limit = self.handlers.max_new_tokens
        try:
            text, paths = messages.question(message)
            decoder = messages.known_decoder(decoder)
            session = self.session(request)
            record = TurnRecord(text, tuple(paths), decoder, limit)
            run = actions.answer(session, record)
            for progress in run.follow():
                turn, queue_s = progress.turn, round(run.waited_s, 3)
                yield (
                    {"text": progress.text}
                    if turn is None
                    else turn.as_dict() | {"queue_s": queue_s}
                )
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from None

    def compare(self, request: gr.Request) -> dict[str, Any]:
        """Run every other decoder on the last turn, from the same state.

        Returns {"decoder": of the answer, "runs": decoder -> turn, "identical": decoder -> whether its
        tokens equal those of the reference, "reference": plain decoding}.
        """
        session = self.session(request)
        if not session.turns:
            raise gr.Error(
                "There is no answer to compare: call /chat first.", print_exception=False
            )
        try:
            actions.compare(session).result()
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from None
        record = session.turns[-1]
        reference, limit = actions.reference_of(record), actions.compared_tokens(record)
        runs = {name: turn for name, turn in record.runs.items() if name in DECODERS}
        expected = runs[reference].token_ids[:limit]
        return {
            "decoder": record.decoder,
            "reference": reference,
            "runs": {name: turn.as_dict() for name, turn in runs.items()},
            "identical": {name: t.token_ids[:limit] == expected for name, t in runs.items()},
        }

    def clear(self, request: gr.Request) -> str:
        """Begin a new conversation; the memories stay."""
        session = self.session(request)
        with session.taken_over():
            session.clear()
        return "cleared"


def endpoints(handlers: Handlers) -> None:
    """Register the endpoints; to be called inside the page's `gr.Blocks`."""
    api = Api(handlers)
    message = gr.JSON(label="message", visible=False)  # anything: `messages` says what is wrong
    decoder = gr.Dropdown(
        list(DECODERS), value="recap", label="decoder", visible=False, allow_custom_value=True
    )
    result = gr.JSON(label="turn", visible=False)
    said = gr.Textbox(label="said", visible=False)
    door = gr.Button(visible=False)
    engine = {
        "concurrency_limit": None,
        "concurrency_id": "engine",
    }  # the service has its own queue
    door.click(api.chat, [message, decoder], result, api_name="chat", **engine)
    door.click(api.compare, None, result, api_name="compare", **engine)
    door.click(api.clear, None, said, api_name="clear")
