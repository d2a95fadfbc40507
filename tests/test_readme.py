"""What the README says runs: its Python example, its commands, its claims about settings."""

import re
import shlex
from pathlib import Path

import pytest

from recap.cli import main
from recap.page.launch import VARIABLES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_exactly_two_commands_set_everything_up():
    setups = [
        line for block in blocks("bash") for line in block.splitlines() if "pip install" in line
    ]
    assert len(setups) == 2
    assert setups[0].endswith("&& python app.py")
    assert setups[1].endswith("&& python -m pytest")


@pytest.mark.parametrize("example", blocks("python"))
def test_python_example_runs(example, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


ASKS = [
    line
    for block in blocks("bash")
    for line in block.splitlines()
    if line.startswith("python -m recap ask") and "Qwen" not in line
]


@pytest.mark.parametrize("line", ASKS)
def test_ask_commands_run(line, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    words = shlex.split(line, comments=True)[3:]
    assert main([*words, "--budget", "15"]) == 0
    assert capsys.readouterr().out.strip()


def test_every_picture_and_file_named_is_there():
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        if not path.startswith("http"):
            assert (ROOT / path).exists(), path
    for path in re.findall(r"(?:assets|tests|recap)/[\w./-]+\.\w+", README):
        assert (ROOT / path).exists(), path


def test_pins_agree():
    pins = dict(
        line.split("==") for line in (ROOT / "requirements.txt").read_text().split() if "==" in line
    )
    front = README.split("---")[1]
    assert f"sdk_version: {pins['gradio']}" in front
    assert pins["torch"] == "2.13.0"


def test_the_variables_of_the_readme_exist():
    of_tests = {"RECAP_HOSTILE", "RECAP_KILLS"}
    for name in set(re.findall(r"RECAP_[A-Z_]+", README)) - of_tests:
        assert name in VARIABLES
