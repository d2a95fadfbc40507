"""The page: its components, and which event calls which method of `handlers`."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr

from ..server.model_loader import ModelLoader
from ..server.sessions import Sessions
from . import api, settings, texts
from .examples import Example, picker
from .handlers import Handlers
from .inspector import camera, inspector, live
from .names import DECODER_NAMES
from .record import recorded_trace

CHOICES = [(name, key) for key, name in DECODER_NAMES.items()]

STAY_S = 15.0
"""How often the page says that it is there: after a cut of its connection nothing else does."""


def build(
    loader: ModelLoader, sessions: Sessions, examples: list[Example], *, max_new_tokens: int = 256
) -> gr.Blocks:
    """The whole page over a model that may still be loading."""
    handlers = Handlers(loader, sessions, examples, max_new_tokens=max_new_tokens)
    p = handlers.parts = SimpleNamespace()
    with gr.Blocks(title="Recap", fill_width=True, analytics_enabled=False) as demo:
        p.state = gr.State("")
        p.live = live()
        with gr.Row(equal_height=False, elem_id="head"):
            with gr.Column(scale=8, min_width=340):
                html(texts.HEADER)
            with gr.Column(scale=5, min_width=340):
                loading = texts.status(f"loading the model “{loader.name}”")
                p.model = html(loading, "model")
        p.picker = picker(examples) if examples else None
        with gr.Row(equal_height=False, elem_id="main"):
            with gr.Column(scale=5, min_width=340, elem_id="left"):
                chat_column(p, model=loader.name)
            with gr.Column(scale=8, min_width=340, elem_id="right"):
                p.trace = inspector(recorded_trace())
        with gr.Row(equal_height=False, elem_id="results-row"):
            with gr.Column(scale=5, min_width=340):
                compare_column(p)
            with gr.Column(scale=8, min_width=340):
                html("<h2>Where the right guesses came from</h2>")
                html(texts.MEMORY_WORDS)
                p.levels = plot("levels")
                p.levels_all = plot("levels-all")
        with gr.Row(equal_height=False, elem_id="more"):
            p.speed = plot("speed")
            p.accepted = plot("accepted")
            p.warming = plot("warming")
        with gr.Accordion("Settings of Recap", open=False, elem_id="settings"):
            p.settings = settings.panel(max_new_tokens)
            with gr.Row():
                p.again = gr.Button("Run the last turn again with these settings", size="sm")
                p.forget = gr.Button("Empty all memories of this page", size="sm")
            html(texts.ECHO)
        html(texts.WORDS, "words")
        p.notes = html("", "notes")
        wire(demo, p, handlers)
    return demo


def html(value: str = "", elem_id: str | None = None) -> gr.HTML:
    """A piece of the page in its own style."""
    return gr.HTML(value, elem_id=elem_id, apply_default_css=False)


def plot(name: str) -> gr.Plot:
    """A chart that appears when the handlers fill it."""
    hidden = {"show_label": False, "container": False, "visible": False}
    return gr.Plot(elem_id=name, elem_classes="rc-plot", **hidden)


def compare_column(p: SimpleNamespace) -> None:
    """The table of the last turn, and which decoders it holds."""
    html("<h2>This turn, decoded in several ways</h2>")
    p.results = html(texts.nothing(), "results")
    info = "They run after the answer, on the same turn."
    p.chosen = gr.CheckboxGroup(
        CHOICES, value=list(DECODER_NAMES), label="Decoders to compare", info=info, elem_id="chosen"
    )
    compare = "Compare now: run them all again, in another order"
    p.compare = gr.Button(compare, size="sm", elem_id="compare")
    p.needs = gr.Button("Which tokens need the image?", size="sm", elem_id="needs")
    html(texts.ECHO)


def chat_column(p: SimpleNamespace, *, model: str) -> None:
    """Chat, text box, status line and the choice of decoder."""
    limits = f"{texts.DEMO_LIMITS.get(model, '')}<p>{texts.KNOWS}</p>"
    p.chat = gr.Chatbot(
        height=440,
        show_label=False,
        elem_id="chat",
        placeholder=f"<div class='rc-placeholder'>{limits}</div>",
        layout="bubble",
        buttons=["copy"],
    )
    p.box = gr.MultimodalTextbox(
        show_label=False,
        label="Question",
        placeholder="Ask about the image; paste or attach one here",
        file_types=["image"],
        file_count="multiple",
        sources=["upload"],
        submit_btn=True,
        stop_btn=False,
        elem_id="box",
        max_plain_text_length=8000,
    )
    p.status = html(texts.status(""), "status")
    p.room = html("", "context")
    with gr.Row(elem_id="choices"):
        p.decoder = gr.Radio(CHOICES, value="recap", label="Decoder", elem_id="decoder", scale=4)
    with gr.Row(elem_id="acts"):
        p.camera = camera()
        p.edit = gr.Button("Edit last question", elem_id="edit", size="sm", min_width=80)
        p.clear = gr.Button("New chat", elem_id="clear", size="sm", min_width=60)


def wire(demo: gr.Blocks, p: SimpleNamespace, handlers: Handlers) -> None:
    """Connect the events. Answers and comparisons of several sessions may run side by side."""
    api.endpoints(handlers)  # first: it takes the names
    decoder_in = [p.decoder, p.state, *p.settings]
    quiet = {"show_progress": "hidden", "api_visibility": "private"}
    engine = {**quiet, "concurrency_limit": None, "concurrency_id": "engine"}
    # "multiple": the next question may come before the page has seen the last comparison end
    often = {**engine, "trigger_mode": "multiple"}
    chat_in = [p.box, *decoder_in]
    begin_out = [p.box, p.chat, p.state, p.status, p.results]
    during = [p.live, p.status, p.results]  # all that changes while a decoder runs
    turn_out = [p.trace, p.live, p.results, p.room]
    everything = [*turn_out, p.levels, p.levels_all, p.speed, p.accepted, p.warming]
    back_out = [*everything, p.chat, p.box, p.status]

    demo.load(handlers.wait_ready, None, [p.model, p.status, p.room, p.notes], **quiet)
    demo.unload(handlers.leave)
    gr.Timer(STAY_S).tick(handlers.stay, None, None, queue=False, **quiet)
    asked = [
        p.box.submit(handlers.ask, chat_in, begin_out, **engine),
        p.chat.retry(handlers.retry, decoder_in, begin_out, **engine),
    ]
    if p.picker is not None:
        p.picker.pick(handlers.pick, p.state, back_out, **quiet)
        asked.append(p.picker.ask(handlers.ask_chip, chat_in, begin_out, **often))
    for event in asked:
        answered = event.then(handlers.answer, p.state, during, **often)
        shown = answered.then(handlers.show, p.state, [*turn_out, p.chat, p.status, p.box], **often)
        ran = shown.then(handlers.compare, [p.state, p.chosen], during, **often)
        ran.then(handlers.compared, p.state, [*everything, p.status], **often)
    p.box.stop(handlers.stop, p.state, None, queue=False, **quiet)
    p.camera.photo(handlers.photo, p.box, p.box, **quiet)
    for event in (p.chat.undo, p.edit.click):
        event(handlers.undo, p.state, back_out, **quiet)
    for event in (p.clear.click, p.chat.clear):
        event(handlers.clear, p.state, back_out, **quiet)
    for event in (
        p.compare.click(handlers.compare_again, [p.state, p.chosen], during, **engine),
        p.again.click(handlers.compare_settings, [p.state, *p.settings], during, **engine),
    ):
        event.then(handlers.compared, p.state, [*everything, p.status], **often)
    p.needs.click(handlers.needs_image, p.state, [p.trace, p.status], **often)
    p.forget.click(handlers.forget, p.state, p.status, **quiet)
