"""What README, docs and model cards say is true: examples run, commands parse, files, links and settings exist."""

from __future__ import annotations

import argparse
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from recap import Conversation, cli, generate, load_target, make_drafter
from recap.demo import __main__ as training
from recap.page.launch import VARIABLES

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "assets").glob("demo_*/README.md")),
    ]
}
README = PAGES["README.md"]
OF_TESTS = {"RECAP_HOSTILE", "RECAP_KILLS"}


def blocks(page: str, *languages: str) -> list[str]:
    return re.findall(rf"```(?:{'|'.join(languages)})\n(.*?)```", PAGES[page], flags=re.DOTALL)


def python_commands() -> list[tuple[str, str]]:
    """(page, command) for every `python -m ...` in a shell block or between backticks."""
    found = []
    for page, text in PAGES.items():
        lines = [line for block in blocks(page, "bash", "sh") for line in block.splitlines()]
        for code in [*lines, *re.findall(r"`([^`\n]+)`", text)]:
            command = code.partition("#")[0].strip()
            if re.match(r"(?:\w+=\S+ )*python -m ", command):
                found.append((page, re.sub(r"^(?:\w+=\S+ )+", "", command)))
    return found


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


def test_exactly_two_commands_set_everything_up():
    setups = [
        line
        for block in blocks("README.md", "bash")
        for line in block.splitlines()
        if "pip install" in line
    ]
    assert len(setups) == 2
    assert setups[0].endswith("&& python app.py")
    assert setups[1].endswith("&& python -m pytest")


@pytest.mark.parametrize("example", blocks("README.md", "python"))
def test_python_example_runs(example, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


ASKS = sorted(
    {
        command
        for _, command in python_commands()
        if command.startswith("python -m recap ask") and "Qwen" not in command and '"' in command
    }
)


@pytest.mark.parametrize("command", ASKS)
def test_ask_commands_run(command, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)[3:]
    assert cli.main([*words, "--budget", "15"]) == 0
    assert capsys.readouterr().out.strip()


class Parsed(Exception):  # noqa: N818
    """A command line was understood; it is not carried out."""


@pytest.mark.parametrize(("page", "command"), python_commands())
def test_documented_commands_exist(page, command, monkeypatch):
    """The module exists; a command of `python -m recap` is understood with all its options."""
    module, *words = shlex.split(command)[2:]
    assert find_spec(module), f"{page}: {command}"
    if module == "recap.demo":
        assert words[0] in training.COMMANDS
    if module != "recap":
        return
    parse = argparse.ArgumentParser.parse_args

    def parse_alone(self, args=None, namespace=None):
        parse(self, args, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
    with pytest.raises((Parsed, SystemExit)) as ended:
        cli.main(words)
    assert ended.type is Parsed or ended.value.code == 0, f"{page}: {command}"  # 0: --help


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_file_named_is_there(page):
    text = PAGES[page]
    folder = (ROOT / page).parent
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        file = (folder / path).resolve() if path else ROOT / page
        if link.startswith("http"):
            continue
        assert file.exists(), link
        if anchor:
            headings = re.findall(
                r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE
            )
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, link
    for path in set(re.findall(r"\b(?:assets|tests|recap|docs)/[\w./-]+\.\w+", text)):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:assets|tests|recap|docs)/[\w./-]*)/?`", text):
        assert (ROOT / path).exists(), path


def test_pins_agree():
    pins = dict(
        line.split("==") for line in (ROOT / "requirements.txt").read_text().split() if "==" in line
    )
    front = README.split("---")[1]
    assert f"sdk_version: {pins['gradio']}" in front
    assert "license: apache-2.0" in front
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_the_variables_that_are_named_exist(page):
    assert set(re.findall(r"RECAP_[A-Z_]+", PAGES[page])) - OF_TESTS <= set(VARIABLES)


def test_the_settings_table_is_the_list_of_the_program():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGES["docs/settings.md"], flags=re.MULTILINE)
    assert dict(rows) == VARIABLES


def test_the_reading_path_counts_its_lines():
    rows = re.findall(
        r"^\| \[`(recap/\S+)`\]\S+ \| (\d+) \|", PAGES["docs/reading.md"], re.MULTILINE
    )
    plain = re.search(
        r"`(recap/drafters/recap/reference.py)`.* in (\d+) lines", PAGES["docs/reading.md"]
    )
    assert len(rows) == 5
    for path, count in [*rows, plain.groups()]:
        lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        assert abs(lines - int(count)) <= 0.1 * lines, f"{path} has {lines} lines, not {count}"


def test_the_drafter_of_the_exercise_is_lossless_and_saves_passes():
    (code,) = blocks("docs/reading.md", "python")
    names: dict = {}
    exec(compile(code, "docs/reading.md", "exec"), names)
    target = load_target("demo")
    drafters = [
        make_drafter("autoregressive", vocab_size=target.vocab_size),
        names["PairDrafter"](target.vocab_size),
    ]
    conversation = Conversation(target)
    turns: dict[str, list] = {drafter.name: [] for drafter in drafters}
    image = Image.open(ROOT / "assets" / "examples" / "menu.png")
    for question in ("Describe everything in detail.", "Transcribe it as a Markdown table."):
        conversation.ask(question, images=[image] if not turns["pair"] else [])
        for place, drafter in enumerate(drafters):
            if place:
                conversation.rewind()
            turns[drafter.name].append(generate(conversation, drafter, max_new_tokens=120))
    plain, pair = turns["autoregressive"], turns["pair"]
    assert [t.token_ids for t in pair] == [t.token_ids for t in plain]
    assert sum(t.passes for t in pair) < 0.8 * sum(t.passes for t in plain)
    assert all(t.sources["pair"].accepted > 0 for t in pair)
