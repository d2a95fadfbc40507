"""The page's Python side, without a browser: words, charts, uploads, settings, examples, recording."""

from __future__ import annotations

import inspect
import json
import urllib.request
from dataclasses import replace
from pathlib import Path

import gradio
import pytest
from PIL import Image

from recap.drafters import DECODERS
from recap.page import charts, examples, inspector, launch, layout, names, record, settings, texts
from recap.server import actions
from recap.server.model_loader import ModelLoader
from recap.server.session import Session, TurnRecord
from recap.server.sessions import Sessions
from recap.trace import SourceCount, Turn, parse
from tests.tools.browser import started_app

from .scripted import ScriptedTarget
from .ui_traces import synthetic_trace

TURN = Turn(
    decoder="recap",
    model="<b>model</b>",
    device="cpu",
    dtype="float32",
    text="a b",
    token_ids=(1, 2, 3, 4),
    prompt_tokens=10,
    cached_tokens=0,
    passes=1,
    prefill_s=0.1,
    decode_s=0.01,
    finish_reason="eos",
    sources={"3-token": SourceCount(9, 5, 2), "1-token": SourceCount(9, 9, 1)},
)


def record_of(**runs: Turn) -> TurnRecord:
    made = TurnRecord("q", (), "recap")
    made.runs, made.answer = runs, runs["recap"]
    return made


def plain(**changes) -> Turn:
    return replace(TURN, decoder="autoregressive", passes=3, decode_s=0.03, sources={}, **changes)


def test_identical_output_is_said():
    assert "not compared yet" in texts.identical_line(record_of(recap=TURN))
    line = texts.identical_line(record_of(recap=TURN, autoregressive=plain()))
    assert "identical output: yes" in line
    line = texts.identical_line(record_of(recap=TURN, autoregressive=plain(token_ids=(1, 2, 9, 4))))
    assert "identical output: no" in line
    assert "Recap: first difference at token 3" in line


def test_a_stopped_answer_is_compared_as_far_as_it_goes():
    stopped = replace(TURN, finish_reason="stopped", token_ids=(1, 2))
    line = texts.identical_line(record_of(recap=stopped, autoregressive=plain()))
    assert "identical output: yes" in line


def test_the_table_says_when_recap_loses():
    table = replace(TURN, decoder="token_recycling", passes=2, decode_s=0.005, sources={})
    html = texts.results_table(record_of(recap=TURN, token_recycling=table, autoregressive=plain()))
    assert "Token Recycling was the fastest" in html
    assert "600 tokens/s against 300" in html
    fast = replace(TURN, decode_s=0.001)
    record = record_of(recap=fast, token_recycling=table)
    html = texts.results_table(record)
    assert "Recap was the fastest" in html
    assert "(this answer)" in html
    record.runs["recap"] = replace(fast, decode_s=0.002)
    assert "(this answer, run again)" in texts.results_table(record)


def test_names_from_outside_are_escaped():
    assert "<b>" not in texts.status("<b>x</b>").replace("</div>", "")
    target = ScriptedTarget()
    target.name = "<b>evil</b>"
    assert "<b>" not in texts.model_line(target, 1.0)
    figure = charts.levels_chart(
        [record_of(recap=TURN)], measured=texts.measured(TURN, n="1"), title="t"
    )
    assert "<b>model" not in figure.layout.title.text


def test_charts_say_n_model_hardware_dtype():
    made = record_of(recap=TURN, autoregressive=plain())
    made.paces = {"recap": ([0.0, 0.01], [1, 4]), "autoregressive": ([0.0, 0.01], [1, 2])}
    said = texts.measured(TURN, n="1 turn")
    for figure in (
        charts.levels_chart([made], measured=said, title="t"),
        charts.speed_chart(made.paces, measured=said),
        charts.accepted_chart([made], measured=said),
        charts.warming_chart([made], measured=said),
    ):
        title = figure.layout.title.text
        for word in ("n = 1 turn", "model", "cpu", "thread", "float32"):
            assert word in title


def test_settings_are_read_back():
    with gradio.Blocks():
        panel = settings.panel(256)
    values = [component.value for component in panel]
    assert settings.read(values) == settings.read([])
    assert settings.longest(values) == 256
    values[0] = 5
    assert settings.read(values).config.budget == 5


def test_environment():
    read = launch.Settings.from_environment
    assert read({}) == launch.Settings()
    assert read({"RECAP_DTYPE": "bfloat16"}).load == {"dtype": "bfloat16"}
    with pytest.raises(SystemExit, match="RECAP_PORT must be a whole number"):
        read({"RECAP_PORT": "many"})
    with pytest.raises(SystemExit, match="RECAP_PORT must be at most 65535"):
        read({"RECAP_PORT": "99999"})


def test_the_queue_of_events_rests_between_looks():
    """What is set belongs to Gradio's inside: here it is seen when that changes."""
    with gradio.Blocks() as demo:
        pass
    demo.queue()
    queue = demo._queue
    assert "await asyncio.sleep(self.sleep_when_free)" in inspect.getsource(queue.start_processing)
    before = queue.sleep_when_free
    launch.calm(demo)
    assert queue.sleep_when_free == launch.QUEUE_REST_S > before


def test_the_value_never_becomes_markup():
    with gradio.Blocks():
        made = inspector.inspector(synthetic_trace(steps=2, nodes=5, nasty=True))
    assert "value" not in made.html_template
    source = inspector.script()
    assert "innerHTML" not in source
    assert "insertAdjacentHTML" not in source
    assert "http://" not in source.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in source


def test_a_colour_of_a_source_is_changed_in_one_place(monkeypatch):
    """names.json reaches charts and style sheet, and no other file holds a colour of it."""
    looks = (*names.SOURCES.values(), *names.DECODERS.values())
    colours = {look[key] for look in looks for key in ("colour", "dark") if key in look}
    folder = Path(names.__file__).parent
    for file in (*names.ASSETS.glob("*.js"), names.ASSETS / "page.css", *folder.glob("*.py")):
        held = {colour for colour in colours if colour in file.read_text(encoding="utf-8").lower()}
        assert held == set(), file.name
    monkeypatch.setitem(names.SOURCES["3-token"], "colour", "#123456")
    assert ".rt-from-3-token { --source: #123456;" in inspector.style()
    figure = charts.levels_chart([record_of(recap=TURN)], measured="n = 1; model", title="t")
    assert figure.data[0].marker.color[0] == "#123456"


def test_colours_are_seen_on_light_and_dark():
    """3:1 at least, on white and on the dark page; those of charts on both."""

    def light(colour: str) -> float:
        parts = [c / 255 for c in bytes.fromhex(colour[1:])]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    for look in (*names.SOURCES.values(), *names.DECODERS.values()):
        assert light("#ffffff") / light(look["colour"]) >= 3, look
        assert light(look["colour"]) / light("#18181b") >= 3, look
        assert light(look.get("dark", look["colour"])) / light("#18181b") >= 3, look


def test_every_example_has_its_image():
    found = examples.load_examples()
    assert found
    for example in found:
        assert example.path.is_file()
        assert example.questions
        assert example.alt
        assert examples.thumbnail(example.path).startswith("data:image/jpeg;base64,")
    assert examples.load_examples(examples.EXAMPLES / "nowhere") == []


def test_a_recorded_trace_is_marked():
    target = ScriptedTarget(seed=3, eos=False)
    target.sees_images = True
    example = examples.load_examples()[0]
    text = record.record(Session(target), "5 6 7 8 5 6 7", example, max_new_tokens=12)
    heads = [r for r in parse(text) if r["type"] == "start"]
    assert heads[0]["decoder"] == "recap"
    assert sorted(h["decoder"] for h in heads) == sorted(DECODERS)
    assert {h["recorded"] for h in heads} == {f"“5 6 7 8 5 6 7” ({example.title})"}
    *_, turn, swap = map(json.loads, text.splitlines())
    assert (turn["type"], swap["type"]) == ("turn", "swap")
    assert len(swap["changes"]) == len(swap["ids"]) > 0


def test_a_stand_in_is_of_the_same_kind(tmp_path):
    gallery = examples.load_examples()
    receipts = [e for e in gallery if e.kind == "receipt"]
    copy = tmp_path / "upload.png"
    copy.write_bytes(receipts[0].path.read_bytes())
    assert examples.stand_in(copy, gallery) == receipts[1]
    menu = next(e for e in gallery if e.kind == "menu")
    assert examples.stand_in(menu.path, gallery) == receipts[0], "the nearest kind"
    copy.write_bytes(b"a photograph")
    assert examples.stand_in(copy, gallery) == gallery[0]
    assert examples.stand_in(receipts[0].path, receipts[:1]) is None


def test_what_needs_the_image_is_refused_where_there_is_none():
    session, other = Session(ScriptedTarget(seed=3, eos=False)), Image.new("RGB", (9, 9))
    for _ in range(2):
        with pytest.raises(ValueError, match="Ask something about an image first"):
            actions.swap_image(session, other, "other").result()
        actions.answer(session, TurnRecord("5 6 7 8", max_new_tokens=9)).result()
    assert session.turns[-1].swap_line == ""


def test_a_trace_holds_one_run_per_decoder_the_answer_first():
    session = Session(ScriptedTarget(seed=3, eos=False))
    actions.answer(session, TurnRecord("5 6 7 8", max_new_tokens=50)).result()
    trace = session.turns[-1].trace
    for _ in range(2):
        actions.compare(session, again=True).result()
        lines = list(parse(session.turns[-1].trace))
        assert [line["type"] for line in lines].count("start") == 4
        assert lines[0]["decoder"] == "recap"
    actions.compare(session).result()
    assert session.turns[-1].trace.startswith(trace[: trace.index('"prefill_s"')])


def test_the_page_can_be_built_before_the_model_is_there():
    import threading

    wait = threading.Event()
    loader = ModelLoader("demo", lambda: wait.wait(5) and ScriptedTarget())
    demo = layout.build(loader, Sessions(), examples.load_examples())
    names = {fn.api_name for fn in demo.fns.values() if fn.api_visibility == "public"}
    assert {"chat", "compare", "clear"} <= names
    wait.set()


def test_the_app_prints_what_it_does_and_its_address(tmp_path):
    """Standard output and errors, from the start until the model is loaded and the page was read."""
    log = tmp_path / "log.txt"
    with started_app(log, "/healthz", RECAP_MODEL="demo") as (address, _):
        urllib.request.urlopen(address, timeout=60).close()
    lines = log.read_text(encoding="utf-8").splitlines()
    if "Compiling the drafters" in lines[1]:  # once on a machine
        del lines[1]
    assert lines == ["Loading the model “demo”.", f"The page is at {address}/ (Ctrl+C stops it)."]
