"""The page as a person uses it: the real app, the real model, Chromium. Needs chromium on the machine."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFilter

from recap.page.examples import load_examples
from recap.page.names import SOURCES
from tests.tools import browser
from tests.tools.browser import ROOT, Person, Watch, chromium_path, running_app
from tests.tools.screenshots import BEST

from .ui_traces import synthetic_trace

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium_path() is None, reason="chromium is not installed"),
]

WIDE = {"width": 1400, "height": 900}
CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
NARROW = {"width": 390, "height": 844}
LONG = "Describe everything in detail."


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_app(tmp_path_factory.mktemp("app") / "log.txt") as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [*browser.FLAGS, *CAMERA]
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(chromium, address):
    """visit(**viewport) -> a Person in a browser context of their own."""
    watch, contexts = Watch(), []

    def new(**more) -> Person:
        context = chromium.new_context(viewport=more.pop("viewport", WIDE), **more)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        watch.on(page, address)
        return Person(page, address)

    yield new
    for context in contexts:
        context.close()
    assert watch.faults == []


@pytest.fixture
def person(visit) -> Person:
    return visit().open()


def photograph(path: Path) -> Path:
    """Something like a photograph: a blurred landscape with grain, 900 x 600."""
    picture = Image.new("RGB", (900, 600), (140, 180, 220))
    draw = ImageDraw.Draw(picture)
    random_ = random.Random(5)
    for layer in range(6):
        shade = 150 - 20 * layer
        top = 250 + 55 * layer
        points = [(x, top + random_.randint(-40, 40)) for x in range(0, 901, 60)]
        draw.polygon([(0, 600), *points, (900, 600)], fill=(shade // 2, shade, shade // 3))
    picture = picture.filter(ImageFilter.GaussianBlur(3))
    grain = Image.effect_noise((900, 600), 30).convert("RGB")
    Image.blend(picture, grain, 0.12).save(path, quality=85)
    return path


def test_a_conversation_about_an_example(person):
    """Pick, ask, follow up, switch the decoder; the comparison and the tree come by themselves."""
    person.pick(0)
    first = person.ask()
    assert first.strip() not in ("", "…")
    person.compared()
    results = person.page.locator("#results").inner_text()
    assert "identical output: yes" in results
    for name in ("Recap (this answer)", "Token Recycling", "Prompt lookup", "One token at a time"):
        assert name in results
    person.page.locator("#levels .js-plotly-plot").wait_for()
    charts = person.page.locator("#levels").inner_text()
    panels = ["look-ups", "hits", "accepted hits"]
    for word in (*panels, "3-token memory", "Token Recycling's table", "n = 1"):
        assert word in charts
    for word in ("look-up", "hit", "accepted hit"):
        assert person.page.locator(".rc-words dt", has_text=word).count()

    person.ask(LONG)
    person.compared()
    person.decoder("One token at a time")
    person.ask("What is it?")
    assert "1.00 tokens per step" in person.status
    person.compared()
    assert "One token at a time (this answer)" in person.page.locator("#results").inner_text()
    assert len(person.answers) == 3
    assert person.counters["mounts"] == 1


def test_the_first_paint_is_alive(person):
    """A recorded trace is there before anything is asked, and goes when an answer comes."""
    assert person.place()[1] > 1
    summary = person.page.locator(".rt-summary")
    assert "recorded earlier" in summary.inner_text()
    assert load_examples()[0].questions[0] in summary.inner_text()
    assert "accepted" in person.sentence()
    person.pick(0)
    person.ask()
    assert "recorded earlier" not in summary.inner_text()


def test_what_needs_an_answer_waits_for_one(person):
    """Nothing to edit or to compare: the buttons are off, and again so after Clear."""
    page = person.page
    buttons = [page.locator(name) for name in ("#edit", "#compare")]
    person.until(lambda: all(b.is_disabled() for b in buttons), "buttons that are off")
    person.pick(0)
    person.ask()
    assert all(b.is_enabled() for b in buttons)
    page.locator("#clear").click()
    person.until(lambda: all(b.is_disabled() for b in buttons), "buttons that are off again")


def test_a_picked_example_is_asked_by_enter_and_its_questions_keep_their_image(person):
    """The box has the focus; a question of the example comes with its picture, once; Clear puts it back."""
    page = person.page
    person.pick(0)
    page.keyboard.press("Enter")
    person.answered(1)
    page.locator("#clear").click()
    person.until(lambda: not person.answers, "an empty chat")
    assert page.locator(".rc-thumb[aria-pressed=true], .rc-picker .rc-chip").count() == 0
    person.pick(0)
    page.locator("#box button[aria-label*=emove]").first.click()  # the picture leaves the box
    person.until(lambda: page.locator("#box img").count() == 0, "a box without a picture")
    pictures = page.locator("#chat .user-row button img")
    page.locator(".rc-chip").first.click()
    person.answered(1)
    assert pictures.count() == 1
    page.locator(".rc-chip").nth(1).click()  # a follow-up: the image is there already
    person.answered(2)
    assert pictures.count() == 1


def test_what_is_refused_before_any_answer_is_said(person, tmp_path):
    """The status line keeps its sentence where there is nothing else to show."""
    said = person.page.locator("#status .rc-status")
    person.send()
    person.until(lambda: "Type a question first." in said.inner_text(), "the sentence")
    fake = tmp_path / "fake.png"
    fake.write_bytes(b"no image at all")
    person.upload(fake)
    person.until(lambda: person.page.locator("#box img").count() == 1, "the file")
    person.type("What is it?")
    person.send()
    person.until(lambda: "is not an image" in said.inner_text(), "the sentence")
    table = person.page.locator("#results")
    person.until(lambda: "After an answer" in table.inner_text(), "the table's place, as before")
    assert "is not an image" in said.inner_text()


def test_a_step_of_ones_own_ends_the_playing(person):
    person.pick(0)
    person.ask()
    person.button("First step").click()
    person.button("Play the steps").click()
    person.page.locator(".rt-group").nth(2).click()
    assert person.place()[0] == 2
    assert person.button("Play the steps").count() == 1, "it does not play any more"


def test_a_file_is_closed_again_and_half_a_file_is_said(person, tmp_path):
    page = person.page
    person.pick(0)
    person.ask()
    summary = page.locator(".rt-summary")
    own = summary.inner_text().rsplit("·", 1)[
        0
    ]  # all but the speed, which the comparison measures again
    whole = synthetic_trace(steps=6, nodes=8)
    half = tmp_path / "half.ndjson"
    half.write_text("\n".join(whole.splitlines()[:4]) + "\n")
    person.trace(half)
    opened = summary.inner_text()
    assert "it ends in the middle" in opened
    updates = person.counters["updates"]
    page.locator("#compare").click()
    person.until(lambda: person.counters["updates"] > updates, "the comparison's trace")
    assert summary.inner_text() == opened, "a comparison leaves the file open"
    page.get_by_role("button", name="close the file").click()
    assert summary.inner_text().rsplit("·", 1)[0] == own
    assert page.get_by_role("button", name="close the file").count() == 0
    person.trace(half)
    person.ask("What can you do?")
    person.until(lambda: "file:" not in summary.inner_text(), "its own trace")


def test_a_trace_of_another_format_is_refused(person, tmp_path):
    """In one sentence, wherever it comes from: an opened file leaves what is shown."""
    page, shown = person.page, person.place()
    sentence = "This trace has format 1, and this page reads format 2: record it again."
    old = tmp_path / "old.ndjson"
    old.write_text(synthetic_trace(steps=2, nodes=5).replace('"format":2', '"format":1'))
    person.trace(old)
    assert page.locator(".rt-summary").inner_text() == f"“old.ndjson”: {sentence}"
    assert person.place() == shown
    assert page.get_by_role("button", name="close the file").count() == 0
    with page.expect_download() as download:
        page.get_by_text("save as a web page").click()
    saved = tmp_path / "saved.html"
    html = Path(download.value.path()).read_text(encoding="utf-8")
    saved.write_text(html.replace('"format":2', '"format":1'), encoding="utf-8")
    alone = page.context.new_page()
    alone.goto(saved.as_uri())
    assert alone.locator(".rt-empty").inner_text() == sentence
    assert alone.locator(".rt-body").is_hidden()


@pytest.mark.parametrize("dark", [False, True])
def test_each_source_has_the_colour_of_names_json(visit, dark):
    person = visit().open(dark=dark)
    fills = "(marks) => marks.map((mark) => getComputedStyle(mark).fill)"
    colours = [source["dark" if dark else "colour"] for source in SOURCES.values()]
    expected = [f"rgb{tuple(bytes.fromhex(colour[1:]))}" for colour in colours]
    assert person.page.locator(".rt-legend .rt-mark").evaluate_all(fills) == expected


def test_which_tokens_need_the_image(person):
    """Led along the answer with another image: tokens that change are marked in both strips, and said."""
    page = person.page
    marks = page.locator(".rt-token.rt-image")
    person.pick(0)
    words = person.ask()
    person.compared()
    assert marks.count() == 0
    page.locator("#needs").click()
    person.until(lambda: marks.count() > 0, "marked tokens")
    said = page.locator(".rt-swapped").inner_text()
    changed, tokens = re.search(r"chosen (\d+) of these (\d+) tokens", said).groups()
    assert marks.count() == int(changed) < int(tokens) == page.locator(".rt-token").count()
    assert page.locator(".rt-step-image").count() > 0
    assert f"{changed} of these {tokens} tokens" in person.status
    for text in marks.all_inner_texts():  # what is read off the image, not the sentence around it
        assert text.replace("·", " ") in words.replace("\n", "⏎") or text == "·"
    person.ask("What can you do?")
    person.until(lambda: marks.count() == 0, "no marks on another answer")


def test_moving_through_the_steps(person):
    """Buttons, slider, keys, the token strip, other runs: the same tree component all the time."""
    person.pick(0)
    person.ask()
    person.compared()
    page = person.page
    steps = person.place()[1]
    assert steps >= 2
    assert person.counters["steps"] >= steps
    person.button("First step").click()
    assert person.place() == (1, steps)
    assert person.sentence().startswith("Step 1:")
    person.button("One step on").click()
    assert person.place() == (2, steps)
    person.button("One step back").click()
    assert person.place() == (1, steps)
    person.button("Last step").click()
    assert person.place() == (steps, steps)

    slider = page.locator(".rt-slider")
    slider.fill("2")
    assert person.place() == (2, steps)
    stage = page.locator(".rt-stage")
    stage.focus()
    for key, place in (("Home", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", steps)):
        page.keyboard.press(key)
        assert person.place() == (place, steps), key
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")  # into the tree
    assert page.locator(".rt-detail").inner_text()
    assert person.button("Follow the newest step").get_attribute("aria-pressed") == "false"
    page.keyboard.press("Space")
    person.until(lambda: person.place()[0] > 1, "the steps to play")
    page.keyboard.press("Space")

    group = page.locator(".rt-group:not([disabled])").nth(1)
    group.click()
    assert person.place()[0] == 2

    person.button("Token Recycling").click()
    assert page.locator(".rt-answer").inner_text()
    person.button("One token at a time").click()
    assert "1.00 tokens per step" in page.locator(".rt-summary").inner_text()
    person.button("First step").click()
    assert "nothing was guessed" in person.sentence()
    person.button("Recap").click()
    person.button("Follow the newest step").click()
    assert person.place() == (steps, steps)
    assert person.counters["mounts"] == 1
    assert person.counters["draws"] >= 10


def test_every_step_is_drawn_in_replay(person):
    person.pick(0)
    person.ask()
    person.compared()
    steps = person.place()[1]
    person.button("First step").click()
    person.page.get_by_label("Steps per second").select_option("30")
    person.page.evaluate("window.__recapTree.drawn = []")
    person.button("First step").click()
    person.button("Play the steps").click()
    person.until(lambda: person.place()[0] == steps, "the last step")
    drawn = person.counters["drawn"]
    assert [i for i in range(steps) if not drawn[i]] == []


def test_details_of_a_node(person):
    """Hover shows what each level said; the tree tells its four kinds of node apart."""
    person.pick(0)
    person.ask()
    person.compared()
    page = person.page
    person.ask(LONG)
    person.compared()
    page.locator(".rt-slider").fill(str(page.evaluate(BEST) + 1))  # a step with accepted tokens
    assert page.locator(".rt-node.rt-root").count() == 1
    node = page.locator(".rt-node.rt-accepted").first
    node.hover()
    detail = page.locator(".rt-detail").inner_text()
    columns = ["entropy", "confidence", "weight", "mixed probability"]
    assert [w for w in ("accepted", "token id", "depth", *columns) if w not in detail] == []
    # the stored predictions: what each source predicted to come next, this token among them
    rows = page.locator(".rt-stored .rt-prediction")
    assert rows.last.locator("dt").inner_text().strip() == "mixed"
    assert rows.count() >= 2
    assert rows.last.locator(".rt-this").count() == 1
    node.click()
    page.mouse.move(0, 0)
    assert page.locator(".rt-detail").count() == 1  # a click keeps it


PRESS_STOP = """(sign) => {
  const press = () => {
    const stop = document.querySelector("#box .stop-button, #box button[aria-label=Stop]");
    if (!stop || !document.querySelector(sign)) return false;
    stop.click();
    return true;
  };
  const watch = new MutationObserver(() => press() && watch.disconnect());
  watch.observe(document.body, { childList: true, subtree: true, attributes: true });
}"""
"""Presses the stop button the moment `sign` is there: the demo model answers faster than a hand moves."""


def stopped(person: Person, sign: str) -> bool:
    """Ask for a long answer and press stop when `sign` shows -> whether it was stopped."""
    before = len(person.answers)
    person.type(LONG)
    person.page.evaluate(PRESS_STOP, sign)
    person.send()
    person.until(lambda: len(person.answers) > before, "an answer")
    person.page.locator("#status .rc-status.done").wait_for()
    return person.status.lower().startswith("stopped")


def test_stop(person):
    """Stop ends the answer, keeps what is there, and the chat goes on."""
    person.pick(0)
    person.ask()
    person.decoder("One token at a time")
    assert stopped(person, "#box")  # pressed at once: before the first pass
    # pressed while words come; a fast machine may finish first, a slow one may not have begun
    if any(stopped(person, ".rc-live") and person.answers[-1] for _ in range(6)):
        person.compared(4)
        assert "identical output: yes" in person.page.locator("#results").inner_text()
    person.decoder("Recap")
    assert person.ask("What is it?").strip()


def test_not_an_image(person, tmp_path):
    """One clear sentence, and the chat goes on."""
    text = tmp_path / "notes.txt"
    text.write_text("no image")
    person.upload(text)
    person.page.get_by_text("Invalid file type: notes.txt").wait_for()
    broken = tmp_path / "broken.png"
    broken.write_text("no image either")
    person.upload(broken)
    box = person.page.locator("#box")
    person.until(lambda: "broken.png" in box.inner_html(), "the file in the box")
    person.type("What is it?")
    person.send()
    person.until(lambda: "is not an image" in " ".join(person.answers), "the sentence")
    assert person.answers[-1].strip().startswith("“broken.png” is not an image; try a PNG, ")
    person.pick(0)
    assert "not an image" not in person.ask()


def test_a_further_image_is_said(person, tmp_path):
    person.pick(0)
    person.ask()
    person.upload(photograph(tmp_path / "photo.jpg"))
    person.until(lambda: person.page.locator("#box img").count() == 1, "the upload")
    person.ask("What do you see now?")
    assert "further image joined" in person.status
    assert len(person.answers) == 2


def budget(person: Person, most: int) -> None:
    person.page.get_by_text("Settings of Recap").click()
    number = person.page.get_by_label("number input for Most guesses per step")
    number.fill(str(most))
    number.press("Tab")


def saved_trace(person: Person) -> list[str]:
    """The lines of "save this trace", of the first run."""
    with person.page.expect_download() as download:
        person.page.get_by_text("save this trace").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    return lines[: next(i for i, line in enumerate(lines) if '"type":"turn"' in line)]


EACH_STEP = """(see) => {
  const slider = document.querySelector(".rt-slider");
  for (let i = 1; i <= Number(slider.max); i++) {
    slider.value = i;
    slider.dispatchEvent(new Event("input"));
    see();
  }
}"""
"""Moves the slider over every step of the shown run."""


def sources(person: Person, name: str) -> set[str]:
    """The sources that the details of a run's nodes name."""
    person.button(name).click()
    named = """(look) => {
      const named = new Set();
      eval(look)(() => {
        for (const node of document.querySelectorAll(".rt-node")) {
          node.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
          for (const source of document.querySelectorAll(".rt-contributions tbody th")) named.add(source.innerText.trim());
        }
      });
      return [...named];
    }"""
    return set(person.page.evaluate(named, EACH_STEP))


def most_nodes(person: Person) -> int:
    """Drafted tokens in the largest tree of the run that is shown."""
    return max(
        len(step["nodes"]) - 1
        for step in map(json.loads, saved_trace(person))
        if step["type"] == "step" and step["nodes"]
    )


def test_two_people_see_nothing_of_each_other(visit):
    alone = visit().open()
    alone.pick(0)
    expected = alone.ask()
    one, two = visit().open(), visit().open()
    budget(one, 1)
    one.pick(0)
    two.pick(1)
    one.send()
    two.send()
    for someone in (one, two):
        someone.answered(1)
        someone.compared()
    assert one.answers == [expected]
    assert len(two.answers) == 1
    assert most_nodes(one) <= 1
    assert most_nodes(alone) > 1
    alone.ask(LONG)  # with its own settings still
    alone.compared()
    assert most_nodes(alone) > 1
    assert one.page.locator("#chat .user-row").count() == 1
    two.page.locator("#clear").click()
    two.until(lambda: two.answers == [], "an empty chat")
    assert one.answers == [expected]


@pytest.mark.parametrize("dark", [False, True])
def test_narrow(visit, dark):
    """390 px wide: nothing sticks out, everything is reachable."""
    person = visit(viewport=NARROW, has_touch=True).open(dark=dark)
    person.pick(0)
    person.ask()
    person.compared()
    page = person.page
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    person.button("First step").click()
    assert person.place()[0] == 1
    assert page.locator(".rt-stage").bounding_box()["width"] <= NARROW["width"]
    page.get_by_text("Settings of Recap").click()
    switch = page.locator("#settings .block", has_text="Weigh by confidence").last
    switch.wait_for(state="visible")
    assert switch.bounding_box()["width"] > 200, "its words have room"


def tab_to(page, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("(s) => document.activeElement.matches(s)", selector):
            return
    pytest.fail(f"{selector} cannot be reached with the Tab key")


def test_keyboard_alone(person):
    """From the example to the steps and back to an empty page, without a pointer."""
    page = person.page
    tab_to(page, ".rc-thumb")
    page.keyboard.press("Enter")
    box = page.locator("#box textarea")
    person.until(lambda: bool(box.input_value()), "the question in the box")
    tab_to(page, "#box textarea")
    page.keyboard.press("Enter")
    person.until(lambda: len(person.answers) == 1, "an answer")
    person.compared()
    tab_to(page, ".rt-stage")
    page.keyboard.press("Home")
    assert person.place()[0] == 1
    page.keyboard.press("ArrowDown")
    assert page.locator(".rt-detail").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".rt-detail").count() == 0
    tab_to(page, "#compare")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")  # the last of the decoders to compare
    assert page.locator("#chosen input").last.is_checked() is False
    tab_to(page, "#clear")
    page.keyboard.press("Enter")
    person.until(lambda: person.answers == [], "an empty chat")


# ---- the conversation and what follows it ------------------------------------------------------------


def nothing_is_drawn(person: Person) -> bool:
    page = person.page
    return (
        page.locator(".rt-empty").is_visible()
        and not page.locator(".rt-tree").is_visible()
        and page.locator(".rc-plot:visible").count() == 0
        and "After an answer" in page.locator("#results").inner_text()
    )


def test_tree_and_charts_follow_the_conversation(person):
    """Clear and going back leave nothing of what is gone."""
    page = person.page
    person.pick(0)
    person.ask()
    person.compared()
    strip, results = page.locator(".rt-answer"), page.locator("#results")
    first, table = strip.inner_text(), results.inner_text()
    page.locator("#levels .js-plotly-plot").wait_for()
    person.ask(LONG)
    person.compared()
    assert strip.inner_text() != first
    page.locator("#levels-all .js-plotly-plot").wait_for()
    edit = page.get_by_role("button", name="Edit last question")
    edit.click()
    person.until(lambda: strip.inner_text() == first, "the tree of the first answer")
    person.until(lambda: results.inner_text() == table, "its table")
    assert page.locator("#box textarea").input_value() == LONG
    page.locator("#levels-all").wait_for(state="hidden")
    assert page.locator("#levels .js-plotly-plot").is_visible()
    edit.click()
    person.until(lambda: nothing_is_drawn(person), "nothing drawn after the last undo")
    person.ask(LONG)
    person.compared()
    page.locator("#clear").click()
    person.until(lambda: nothing_is_drawn(person), "nothing drawn after Clear")


def test_a_question_is_shown_as_it_was_typed(visit):
    """Markup, markdown, blanks and line ends stay what they are; the copy button copies them."""
    person = visit(permissions=["clipboard-read", "clipboard-write"]).open()
    page = person.page
    typed = "**b** <img src=x onerror=document.title='broken'> `c` $x$ [a](http://b.c)\n  1. www.d.e & &amp;"
    person.ask(typed)
    bubble = page.locator("#chat [data-testid=user]").last
    assert bubble.inner_text().strip("\n") == typed
    assert bubble.locator("img, b, strong, a, code, ol").count() == 0
    assert bubble.get_attribute("aria-label") == f"You: {typed}"
    page.locator("#chat .user-row + .message-buttons").get_by_label("Copy message").click()
    assert page.evaluate("navigator.clipboard.readText()") == typed
    assert "broken" not in page.title()


def test_all_of_a_conversation_is_in_view_on_a_laptop(person):
    """1400 x 900: question box, status, the answer's end, tree and details stand in the window."""
    page = person.page
    person.pick(0)

    def below_the_window(*selectors: str) -> list[str]:
        boxes = {s: page.locator(s).last.bounding_box() for s in selectors}
        return [s for s, b in boxes.items() if b is None or b["y"] + b["height"] > WIDE["height"]]

    assert below_the_window("#box textarea", "#status", "#decoder", "#clear") == []
    person.ask(LONG)
    person.compared()
    page.locator(".rt-slider").fill(str(page.evaluate(BEST) + 1))
    page.locator(".rt-node").last.dispatch_event("click")
    parts = ("#box textarea", "#status", "#clear", "#chat [data-testid=bot]")
    assert below_the_window(*parts, ".rt-stage", ".rt-detail") == []
    assert page.evaluate("window.scrollY") == 0


def test_suggested_questions(person):
    """One pressed while another is answered takes over; the box stays empty."""
    page = person.page
    person.pick(0)
    chips = page.locator(".rc-chip")
    said = [chips.nth(i).inner_text() for i in (0, 1)]
    chips.nth(0).click()
    chips.nth(1).click()
    asked = page.locator("#chat [data-testid=user] p")
    person.until(lambda: asked.last.inner_text() == said[1], "the second question")
    person.until(lambda: person.status.startswith("done"), "its answer")
    person.until(lambda: person.answers[-1].strip() not in ("", "…"), "its words")
    assert page.locator("#box textarea").input_value() == ""
    person.ask(said[0])
    assert page.locator("#box textarea").input_value() == ""
    person.type("half a thought")
    chips.nth(1).click()
    person.until(lambda: asked.last.inner_text() == said[1], "the question")
    assert page.locator("#box textarea").input_value() == "half a thought"


def test_a_picture_from_the_camera(person):
    page = person.page
    camera = page.get_by_role("button", name="Camera", exact=True)
    camera.click()
    page.get_by_role("button", name="Take the picture").click()
    person.until(lambda: page.locator("#box img").count() == 1, "the picture in the box")
    assert page.locator(".rc-dialog").is_visible() is False
    assert person.ask("What do you see?").strip()
    assert page.locator("#chat .user-row img").count() == 1
    denied = "async () => { throw new Error('Permission denied'); }"
    page.evaluate(f"() => {{ navigator.mediaDevices.getUserMedia = {denied}; }}")
    camera.click()
    page.get_by_text("No camera can be used: Permission denied.").wait_for()
    page.get_by_role("button", name="Cancel").click()
    assert page.locator(".rc-dialog").is_visible() is False


def test_a_pasted_picture(person):
    """A picture from the clipboard joins the question."""
    page = person.page
    page.locator("#box textarea").evaluate(
        """async (box) => {
          const canvas = Object.assign(document.createElement("canvas"), { width: 120, height: 80 });
          canvas.getContext("2d").fillRect(10, 10, 40, 40);
          const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
          const data = new DataTransfer();
          data.items.add(new File([blob], "pasted.png", { type: "image/png" }));
          box.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
        }"""
    )
    person.until(lambda: page.locator("#box img").count() == 1, "the picture in the box")
    assert person.ask("What do you see?").strip()
    assert page.locator("#chat .user-row img").count() == 1


def test_closed_branches_and_the_token_strip(person, tmp_path):
    """A large tree closes unlikely branches, "+n" opens one; token and node show each other."""
    page = person.page
    open_trace(person, tmp_path / "large.ndjson", synthetic_trace(steps=6, nodes=80))
    nodes = page.locator(".rt-node")
    closed = nodes.count()
    assert closed < 80
    more = page.locator(".rt-more")
    hidden = int(more.first.text_content())
    page.locator(".rt-node:has(.rt-more)").first.dispatch_event("click")
    assert closed < nodes.count() <= closed + hidden
    person.button("Open every branch, or close the unlikely ones").click()
    assert nodes.count() == 82  # with the root and the target's own token
    assert more.count() == 0

    page.locator(".rt-slider").fill(str(page.evaluate(BEST) + 1))
    step = person.place()[0]
    page.locator(".rt-node.rt-accepted").first.hover()
    seen = page.locator(".rt-answer .rt-seen")
    assert seen.count() == 1
    group = page.locator(f".rt-group[aria-label='Step {step}']")
    assert group.locator(".rt-seen").count() == 1
    page.mouse.move(0, 0)
    group.locator(".rt-token").first.hover()
    selected = page.locator(".rt-node.rt-selected")
    assert selected.count() == 1
    token = group.locator(".rt-token").first
    assert selected.get_attribute("data-node") == token.get_attribute("data-node")
    assert page.locator(".rt-detail").inner_text()


def test_the_newest_step_is_followed_while_an_answer_is_made(person):
    """A live step shows its tree, the text so far in the chat, and goes when the answer is there."""
    page = person.page
    person.pick(0)
    person.ask()
    person.compared()
    before = page.locator(".rt-answer").inner_text()
    start, step, *_ = synthetic_trace(steps=1, nodes=30).splitlines()
    live = {"passes": 37, "tokens": 90, "text": "<b>so far</b>", "beside": False}
    live |= {"start": {**json.loads(start), "turn": "new"}, "step": json.loads(step)}
    tell = "(live) => window.dispatchEvent(new CustomEvent('recap-live', { detail: live }))"
    page.evaluate(tell, live | {"beside": True})  # a decoder that is compared is not shown
    assert page.locator(".rt-answer").inner_text() == before
    page.evaluate(tell, live)
    assert page.locator(".rt-position").inner_text() == "step 37"
    assert person.sentence().startswith("Step 37:")
    assert "90 tokens" in page.locator(".rt-summary").inner_text()
    assert page.locator(".rt-answer").inner_text() == "<b>so far</b>"
    assert page.locator("#chat .rc-live").inner_text() == "<b>so far</b>"
    page.evaluate(tell, None)
    assert page.locator(".rt-answer").inner_text() == before
    assert page.locator("#chat .rc-live").count() == 0


def test_the_decoders_that_are_compared_are_chosen(person):
    page = person.page
    for name in ("Prompt lookup", "One token at a time"):
        page.locator("#chosen").get_by_label(name).uncheck()
    person.pick(0)
    person.ask()
    person.compared(2)
    page.locator("#levels .js-plotly-plot").wait_for()
    rows = page.locator("#results tbody tr")
    assert rows.count() == 2
    page.locator("#chosen").get_by_label("One token at a time").check()
    page.locator("#compare").click()
    person.compared(3)
    page.locator("#results").get_by_text("With the trace off").wait_for()
    order = page.locator("#results").get_by_text("in this order").inner_text()
    for name in ("Recap", "Token Recycling", "One token at a time"):
        assert name in order
    for name in ("Recap", "Token Recycling", "One token at a time"):
        page.locator("#chosen").get_by_label(name).uncheck()
    page.locator("#compare").click()
    person.until(lambda: "Choose at least one decoder" in person.status, "the sentence")
    assert rows.count() == 3


def test_words_and_room_are_said(person):
    page = person.page
    person.until(
        lambda: "tokens of the context" in page.locator("#context").inner_text(), "the room"
    )
    assert "20 MB and 50 million pixels at most" in page.locator("#context").inner_text()
    page.locator("#box textarea").press_sequentially("x")
    page.locator("#box textarea").fill("word " * 3000)
    person.until(lambda: "are left" in page.locator("#context").inner_text(), "the warning")
    person.type("short")
    person.until(lambda: "in use" in page.locator("#context").inner_text(), "the room again")
    page.get_by_text("Words on this page").click()
    words = page.locator("#words dt").all_inner_texts()
    assert {"step", "guess", "memory", "second choice"} <= set(words)


def test_no_image_from_elsewhere(chromium, address):
    """An answer that names an image of another host gets nothing: the page's policy forbids it."""
    context = chromium.new_context()
    page = Person(context.new_page(), address).open().page
    page.evaluate(
        """() => {
          document.addEventListener("securitypolicyviolation", (event) => (window.refused = event.blockedURI));
          document.body.append(Object.assign(new Image(), { src: "http://elsewhere.invalid/x.png" }));
        }"""
    )
    page.wait_for_function("window.refused?.startsWith('http://elsewhere.invalid')")
    context.close()


@pytest.mark.parametrize("width", [700, 1024, 1920])
def test_any_width(visit, width):
    """Nothing sticks out sideways."""
    person = visit(viewport={"width": width, "height": 800}).open()
    person.pick(0)
    person.ask()
    person.compared()
    assert person.page.evaluate("document.documentElement.scrollWidth") <= width


def test_reduced_motion(visit):
    """The race shows its result at once."""
    person = visit(reduced_motion="reduce").open()
    person.pick(0)
    person.ask()
    person.compared()
    person.page.locator(".rt-race-button").click()
    assert "4. " in person.page.locator(".rt-race .rt-sentence").inner_text()


# ---- beyond the first answer: redo, settings, files, accessibility, the programming interface --------


def test_retry_undo_and_edit(person):
    person.pick(0)
    first = person.ask()
    person.compared()
    results = person.page.locator("#results")
    person.decoder("One token at a time")
    person.page.locator("#chat").get_by_role("button", name="Retry").last.click()
    results.get_by_text("One token at a time (this answer)").wait_for()
    person.compared()
    assert person.answers == [first]  # greedy: the same words, whoever decodes
    person.page.locator("#chat").get_by_role("button", name="Undo").last.click()
    person.until(lambda: person.answers == [], "the answer to go")
    box = person.page.locator("#box textarea")
    person.until(lambda: bool(box.input_value()), "the question in the box again")
    person.until(lambda: person.page.locator("#box img").count() == 1, "its image too")
    second = person.ask(LONG)  # edited
    assert second != first
    assert len(person.answers) == 1


def test_settings_change_the_trees(person):
    """A budget of 2 on the same turn: at most 2 guesses per step, the same words, a row of its own."""
    person.pick(0)
    person.ask(LONG)
    person.compared()
    page = person.page
    budget(person, 2)
    page.get_by_role("button", name="Run the last turn again with these settings").click()
    page.locator("#results").get_by_text("(new settings)").wait_for()
    assert "identical output: yes" in page.locator("#results").inner_text()
    person.button("Recap, new settings").click()
    person.button("First step").click()
    assert page.locator(".rt-node:not(.rt-root):not(.rt-bonus)").count() <= 2
    assert len(person.answers) == 1
    page.locator("#settings").get_by_label("lookup").uncheck()
    page.get_by_role("button", name="Run the last turn again with these settings").click()
    person.until(lambda: not page.locator("#results .rc-wait").count(), "the run to end")
    assert page.locator("#results").get_by_text("(new settings)").count() == 1
    person.until(lambda: "lookup" not in sources(person, "Recap, new settings"), "no lookup")
    assert "lookup" in sources(person, "Recap")
    page.get_by_role("button", name="Empty all memories of this page").click()
    person.until(lambda: "memories" in person.status, "the memories to be emptied")


def test_every_decoder_and_the_race(person):
    person.pick(0)
    person.ask()
    person.compared()
    person.page.get_by_role("button", name="Compare now").click()
    person.page.locator("#results").get_by_text("With the trace off").wait_for()
    person.page.locator(".rt-race-button").click()
    order = person.page.locator(".rt-race .rt-sentence")
    person.until(lambda: "4. " in order.inner_text(), "the race to end")
    assert person.page.locator(".rt-lane").count() == 4
    texts = person.page.locator(".rt-lane-text").all_inner_texts()
    assert len(set(texts)) == 1


def open_trace(person: Person, path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    person.trace(path)


def test_texts_that_try_to_break_out(person, tmp_path):
    """Tokens that look like markup, right-to-left, combining, emoji, broken bytes: text everywhere."""
    trace = synthetic_trace(steps=12, nodes=60, nasty=True)
    open_trace(person, tmp_path / "nasty.ndjson", trace)
    page = person.page
    assert person.place() == (1, 12)
    seen = page.locator("#inspector").inner_text()
    for step in range(12):
        page.locator(".rt-slider").fill(str(step + 1))
        seen += page.locator(".rt-tree").inner_html() + page.locator(".rt-answer").inner_text()
    table = synthetic_trace(steps=12, nodes=60, nasty=True, decoder="token_recycling")
    open_trace(person, tmp_path / "two.ndjson", trace + table)
    page.locator(".rt-race-button").click()
    order = page.locator(".rt-race .rt-sentence")
    person.until(lambda: "2. " in order.inner_text(), "the race to end")
    seen += page.locator(".rt-race").inner_html()
    page.locator(".rt-race-button").click()
    open_trace(person, tmp_path / "nasty.ndjson", trace)
    assert "&lt;/script&gt;" in seen
    assert "אבג" in seen
    assert "${value}" in seen
    assert page.locator("#inspector img, #inspector b, #inspector script").count() == 0
    assert "broken" not in page.title()

    with page.expect_download() as download:
        page.get_by_text("save as a web page").click()
    file = tmp_path / "export.html"
    download.value.save_as(file)
    context = page.context.browser.new_context(offline=True)
    try:
        watch, alone = Watch(), context.new_page()
        watch.on(alone, "file:")
        alone.goto(file.as_uri())
        assert alone.locator(".rt-position").inner_text() == "12 / 12"
        alone.locator(".rt-stage").focus()
        alone.keyboard.press("Home")
        assert alone.locator(".rt-position").inner_text() == "1 / 12"
        assert alone.locator("img, b").count() == 0
        assert "broken" not in alone.title()
        assert "“<b>What</b> & <img src=x onerror=y>?” · synthetic · cpu · float32 ·" in (
            alone.locator("body").inner_text()
        )
        assert alone.get_by_role("button", name="Follow the newest step").count() == 0
        assert watch.faults == []
    finally:
        context.close()

    with page.expect_download() as download:
        page.get_by_text("save this trace").click()
    saved = tmp_path / "saved.ndjson"
    download.value.save_as(saved)
    assert saved.read_text(encoding="utf-8") == trace

    bad = tmp_path / "bad.ndjson"
    bad.write_text("no trace")
    page.locator(".rt-file").set_input_files(str(bad))
    summary = page.locator(".rt-summary")
    person.until(lambda: "is not a trace" in summary.inner_text(), "the sentence")


def test_a_long_trace(person, tmp_path):
    """400 steps of 80 nodes: one mount, every step of a scrub drawn, little memory."""
    open_trace(person, tmp_path / "long.ndjson", synthetic_trace(steps=400, nodes=80))
    assert person.place() == (1, 400)
    person.page.evaluate("(look) => eval(look)(() => {})", EACH_STEP)
    counters = person.counters
    assert counters["mounts"] == 1
    assert sum(1 for n in counters["drawn"] if n) == 400
    assert person.page.evaluate("performance.memory.usedJSHeapSize") / 2**20 < 300


@pytest.mark.parametrize("dark", [False, True])
def test_accessibility(visit, dark):
    """axe finds nothing serious or critical, before and after an answer."""
    from axe_playwright_python.sync_playwright import Axe

    person = visit().open(dark=dark)
    person.pick(0)
    person.ask()
    person.compared()
    person.ask("What can you do?")
    person.compared()
    person.page.locator("#warming .js-plotly-plot").wait_for()
    person.page.get_by_text("Settings of Recap").click()
    found = Axe().run(person.page).response["violations"]
    serious = [
        (v["id"], [node["html"][:160] for node in v["nodes"]][:5])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == [], "\n".join(map(str, serious))


def test_the_documented_client_asks_the_running_page(address, monkeypatch, capsys):
    """The example of docs/api.md, against this app."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    assert "http://127.0.0.1:7860" in example
    monkeypatch.chdir(ROOT)
    exec(compile(example.replace("http://127.0.0.1:7860", address), "docs/api.md", "exec"), {})
    text, identical = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert text
    assert "autoregressive" in identical


def test_the_named_endpoints(address, tmp_path):
    """/chat, /compare and /clear through gradio_client, as the README shows."""
    from gradio_client import Client, handle_file

    client = Client(address, verbose=False)
    image = handle_file(str(photograph(tmp_path / "photo.jpg")))
    turn = client.predict({"text": "What do you see?", "files": [image]}, api_name="/chat")
    assert turn["text"]
    assert turn["decoder"] == "recap"
    turn = client.predict({"text": "And now?"}, "token_recycling", api_name="/chat")
    assert turn["cached_tokens"] > 0
    compared = client.predict(api_name="/compare")
    assert set(compared["runs"]) == set(compared["identical"])
    assert all(compared["identical"].values())
    *partial, turn = client.submit({"text": "Once more?"}, api_name="/chat")
    assert turn["finish_reason"] == "eos"
    assert all(turn["text"].startswith(part["text"]) for part in partial)
    assert client.predict(api_name="/clear") == "cleared"
    with pytest.raises(Exception, match="Type a question first"):
        client.predict({"text": ""}, api_name="/chat")
