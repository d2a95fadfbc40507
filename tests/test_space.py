"""The hosted Space: the Spacefile against the repository, and against a hub on this machine.

No test talks to the real hub: `local_hub` answers as it does.
"""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import gradio as gr
import pytest

from recap.page.launch import VARIABLES, Settings
from recap.space.__main__ import main
from recap.space.check import check, uploads
from recap.space.spacefile import ROOT, SpaceError, load
from recap.targets import LoadError, load_target

from .local_hub import OWNER, LocalHub, Space, local_hub

NAME = f"{OWNER}/recap-demo"
TEXTS = ("Spacefile", "README.md", "requirements.txt", "pyproject.toml", "app.py")


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The files that `check` reads, in a folder of their own, with small stand-ins for the large ones."""
    root = tmp_path_factory.mktemp("space") / "copy"
    root.mkdir()
    for name in TEXTS:
        shutil.copy(ROOT / name, root / name)
    names = uploads(ROOT, load().upload)
    for name in [n for n in names if n.startswith(("recap/", "assets/"))]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).stat().st_size < 100_000:
            shutil.copy(ROOT / name, root / name)
        else:
            (root / name).write_bytes(b"large")
    return root


@pytest.fixture
def root(copy) -> Iterator[Path]:
    """The copy; its texts are as they were after the test."""
    kept = {name: (copy / name).read_bytes() for name in TEXTS}
    yield copy
    for name, data in kept.items():
        (copy / name).write_bytes(data)


def edit(root: Path, file: str, old: str, new: str) -> None:
    text = (root / file).read_text(encoding="utf-8")
    assert re.search(old, text, flags=re.MULTILINE), old
    (root / file).write_text(re.sub(old, new, text, count=1, flags=re.MULTILINE), encoding="utf-8")


def test_the_repository_is_right(capsys):
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "The Spacefile is right.\n"


MISTAKES = {  # what is wrong: file, pattern, replacement, the sentence
    "misspelt key": ("Spacefile", "^hardware:", "hardwear:", "no key “hardwear”; is “hardware” me"),
    "misspelt nested key": ("Spacefile", "  revision:", "  revison:", "no key “model.revison”"),
    "missing key": ("Spacefile", r"^sleep_after_s.*\n", "", "the key “sleep_after_s” is missing"),
    "key twice": ("Spacefile", "^spacefile: 1", "spacefile: 1\nspacefile: 1", "is there twice"),
    "no YAML": ("Spacefile", "^hardware: ", "hardware: [", r"not YAML \(line"),
    "wrong type": ("Spacefile", "900", "soon", "“sleep_after_s” is wrong: .*not “soon”"),
    "unknown version": ("Spacefile", "^spacefile: 1", "spacefile: 2", "“spacefile” is wrong"),
    "unknown hardware": ("Spacefile", "l40sx1", "l40x1", "no hardware “l40x1”"),
    "other hardware": ("Spacefile", "l40sx1", "l4x1", "suggests the hardware l40sx1, the Spacefile"),
    "no GPU": ("Spacefile", "l40sx1", "cpu-basic", "needs a GPU, and cpu-basic has none"),
    "ZeroGPU": ("Spacefile", "l40sx1", "zero-a10g", "memories would be lost"),
    "sleeps at once": ("Spacefile", "900", "5", "“sleep_after_s” is wrong: .*300"),
    "other model": ("Spacefile", "id: Qwen/Qwen2.5", "id: Qwen/Qwen2", "does not list Qwen/Qwen2-VL"),
    "no model id": ("Spacefile", "id: Qwen/", "id: ", "“model.id” is wrong"),
    "unknown dtype": ("Spacefile", "dtype: bfloat16", "dtype: int4", "“model.dtype” is wrong"),
    "other revision": ("Spacefile", "revision: main", "revision: v2", "not preload .* at v2"),
    "unread variable": ("Spacefile", "  RECAP_H", "  RECAP_GHOST: 1\n  RECAP_H", "no variable RECAP_G"),
    "unread default": ("Spacefile", "  - RECAP_P", "  - RECAP_GHOST\n  - RECAP_P", "no variable RECAP_G"),
    "forgotten variable": ("Spacefile", r"  - RECAP_SESSIONS\n", "", "RECAP_SESSIONS is neither in"),
    "variable twice": ("Spacefile", "  - RECAP_P", "  - RECAP_HOST\n  - RECAP_P", "RECAP_HOST is in var"),
    "model as variable": ("Spacefile", "  RECAP_H", "  RECAP_MODEL: demo\n  RECAP_H", "another key too"),
    "bad value": ("Spacefile", "  RECAP_H", "  RECAP_SESSIONS: many\n  RECAP_H", "whole number above 0"),
    "deaf host": ("Spacefile", r"0\.0\.0\.0", "127.0.0.1", "RECAP_HOST must be 0.0.0.0"),
    "secret value": ("Spacefile", r"secrets: \[\]", f"secrets: [hf_{'a' * 30}]", "values never belong"),
    "secret in a variable": ("Spacefile", r"0\.0\.0\.0", f"hf_{'B' * 30}", r"line \d+ looks like a sec"),
    "secret in a comment": ("requirements.txt", r"\Z", "# token: abcdefgh\n", "looks like a secret val"),
    "no bucket": ("Spacefile", r"volumes: \[\]", "volumes: [{source: d, mount_path: /d}]", "source” is wr"),
    "empty pattern": ("Spacefile", r"upload: \[", "upload: [models/**, ", r"models/\*\*” matches no file"),
    "file left behind": ("Spacefile", ', "recap/\\*\\*"', "", "recap/__init__.py is needed on the Space"),
    "picture left behind": ("Spacefile", ', "assets/\\*\\*"', "", "assets/.* is needed on the Space"),
    "no endpoint": ("Spacefile", "endpoint: /chat", "endpoint: chat", "smoke_test.endpoint” is wrong"),
    "other Gradio": ("requirements.txt", r"gradio==[\d.]+", "gradio==6.0.0", "has gradio 6.0.0"),
    "no pin": ("requirements.txt", "^plotly==.*", "plotly", "plotly must be pinned"),
    "other SDK": ("README.md", "^sdk: gradio", "sdk: docker", "sdk must be gradio, not docker"),
    "old Python": ("README.md", '"3\\.12"', '"3.10"', "python_version is 3.10"),
    "no app": ("README.md", "app_file: app.py", "app_file: main.py", "main.py is needed on the Space"),
    "not preloaded": ("README.md", r"^preload_from_hub:\n  - .*\n", "", "does not preload Qwen"),
    "front matter gone": ("README.md", r"\A---(.|\n)*?---\n", "", "has no front matter"),
    "front matter broken": ("README.md", "^title: ", "title: [", "front matter"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_named(mistake, root):
    file, old, new, match = MISTAKES[mistake]
    edit(root, file, old, new)
    found = check(root)
    assert any(re.search(match, sentence) for sentence in found), found
    assert all(re.fullmatch(r"[^\n]+[.?]", sentence) for sentence in found)


def test_a_right_copy_stays_right(root):
    """So that the test above fails for the mistake and nothing else."""
    assert check(root) == []


def test_what_is_never_uploaded(tmp_path):
    never = ("a/b/.env.local", "a/__pycache__/x.pyc", "a/key.pem", ".git/config")
    for name in (*never, "a/b/right.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert uploads(tmp_path, ("a/**", "**", "a/*")) == ["a/b/right.py"]


@pytest.fixture
def hub(monkeypatch) -> Iterator[LocalHub]:
    with local_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield hub


@pytest.fixture(scope="module")
def app() -> Iterator[str]:
    """What answers the smoke test: a page with the endpoint /chat."""
    with gr.Blocks() as page:
        message, answer = gr.JSON(), gr.JSON()
        gr.Button().click(
            lambda m: {"text": f"You output: {m['text']}"}, message, answer, api_name="chat"
        )
    page.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", ssr_mode=False)
    yield page.local_url
    page.close(verbose=False)


def deploy(root: Path, *more: str) -> int:
    return main(["apply", "--root", str(root), *more])


def test_a_new_space_is_made_and_a_second_apply_changes_nothing(hub, app, root, capsys):
    hub.host = app
    assert deploy(root) == 0
    space, wanted = hub.spaces[NAME], load(root / "Spacefile")
    assert space.variables == wanted.environment
    assert (space.hardware, space.sleep, space.stage) == ("l40sx1", 900, "RUNNING")
    assert space.files["app.py"] == (root / "app.py").read_bytes()
    assert set(space.files) - {".gitattributes"} == set(uploads(root, wanted.upload))
    assert space.restarts <= 1
    kinds = [call.rpartition("/")[2] for call in hub.calls]
    assert kinds[:2] == ["create", "variables"]
    assert kinds[-1] == "hardware"
    assert "smoke test: You output: What can you do?" in capsys.readouterr().out

    hub.calls.clear()
    assert deploy(root) == 0
    assert hub.calls == []
    assert "nothing to do" in capsys.readouterr().out
    assert main(["diff", "--root", str(root)]) == 0


def test_many_changes_are_one_restart(hub, app, root, capsys):
    hub.host = app
    assert deploy(root) == 0
    space = hub.spaces[NAME]
    space.variables |= {"RECAP_HOST": "x", "RECAP_OLD": "y"}
    space.files["old.py"] = b"old"
    space.requested = space.hardware = "l4x1"
    space.sleep, space.restarts = 60, 0
    edit(root, "app.py", r"\Z", "# changed\n")
    hub.calls.clear()
    capsys.readouterr()
    assert main(["diff", "--root", str(root)]) == 1
    output = capsys.readouterr().out
    assert hub.calls == []
    for line in (
        "variable RECAP_HOST = 0.0.0.0 (was x)",
        "variable RECAP_OLD is removed",
        "files: 1 to upload, 1 to delete",
        "hardware l40sx1 (was l4x1), sleep after 900 s (was 60)",
    ):
        assert line in output
    assert deploy(root) == 0
    assert space.restarts == 1
    kinds = [call.rpartition("/")[2] for call in hub.calls]
    assert kinds == ["pause", "variables", "variables", "main", "hardware", "restart"]
    assert "RECAP_OLD" not in space.variables
    assert "old.py" not in space.files
    assert ".gitattributes" in space.files
    assert space.files["app.py"].endswith(b"# changed\n")
    assert (space.hardware, space.stage) == ("l40sx1", "RUNNING")


def test_one_change_needs_no_pause(hub, app, root):
    hub.host = app
    assert deploy(root) == 0
    space = hub.spaces[NAME]
    space.variables["RECAP_HOST"], space.restarts = "x", 0
    hub.calls.clear()
    assert deploy(root) == 0
    assert [call.rpartition("/")[2] for call in hub.calls] == ["variables"]
    assert space.restarts == 1


def test_a_dry_run_prints_the_calls_and_makes_none(hub, root, capsys):
    assert deploy(root, "--dry-run") == 0
    output = capsys.readouterr().out
    assert hub.calls == []
    assert hub.spaces == {}
    order = ["create_repo", "add_space_variable", "upload_folder", "request_space_hardware"]
    order_of = [output.index(f"{name}(repo_id='{NAME}'") for name in order]
    assert order_of == sorted(order_of)
    assert output.endswith("No call was made.\n")


def test_secrets_come_from_the_environment_and_are_not_printed(hub, app, root, capsys, monkeypatch):
    hub.host = app
    edit(root, "Spacefile", r"secrets: \[\]", "secrets: [MY_KEY]")
    assert deploy(root) == 2
    assert "The Space has no secret MY_KEY: set it" in capsys.readouterr().err
    assert hub.calls == []
    monkeypatch.setenv("MY_KEY", "very-secret")
    assert deploy(root, "--dry-run") == 0
    assert deploy(root) == 0
    assert hub.spaces[NAME].secrets == {"MY_KEY": "very-secret"}
    output = capsys.readouterr()
    assert "very-secret" not in output.out + output.err
    assert "value=***" in output.out


def test_volumes_are_mounted_and_taken_away(hub, app, root):
    hub.host = app
    edit(root, "Spacefile", r"volumes: \[\]", "volumes: [{source: tester/b, mount_path: /data}]")
    assert deploy(root) == 0
    assert hub.spaces[NAME].volumes[0]["mountPath"] == "/data"
    hub.calls.clear()
    assert deploy(root) == 0
    assert hub.calls == []
    edit(root, "Spacefile", r"volumes: .*", "volumes: []")
    assert deploy(root) == 0
    assert hub.spaces[NAME].volumes == []


def test_mistakes_are_found_before_the_hub_is_asked(hub, root, capsys):
    edit(root, "Spacefile", r"l40sx1", "toaster")
    assert deploy(root) == 1
    assert "no hardware “toaster”" in capsys.readouterr().err
    assert hub.calls == []


@pytest.mark.parametrize(
    ("status", "match"),
    [(401, "does not know this token"), (403, "does not let this token"), (500, "answered 500")],
)
def test_a_hub_that_refuses_is_one_sentence(hub, root, capsys, status, match):
    hub.deny = status
    assert deploy(root) == 2
    output = capsys.readouterr().err
    assert match in output
    assert len(output.strip().splitlines()) == 1


def test_a_hub_that_is_away_is_one_sentence(root, capsys, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    assert deploy(root) == 2
    assert "The hub cannot be reached" in capsys.readouterr().err


def test_a_space_that_fails_or_does_not_answer_is_reported(hub, root, capsys):
    hub.spaces[NAME] = Space(stage="RUNNING", next_stage="BUILD_ERROR")
    assert deploy(root) == 2
    assert "The Space is BUILD_ERROR: read its logs" in capsys.readouterr().err
    hub.spaces.clear()
    hub.host = "http://127.0.0.1:9"
    assert deploy(root) == 2
    assert "The smoke test failed: " in capsys.readouterr().err


def test_no_spacefile(tmp_path):
    with pytest.raises(SpaceError, match="There is no Spacefile"):
        load(tmp_path / "Spacefile")


def test_the_code_reads_the_variables_of_the_help_and_no_others():
    files = [ROOT / "app.py", *(ROOT / "recap").rglob("*.py")]
    code = "\n".join(f.read_text(encoding="utf-8") for f in files if f.parent.name != "space")
    assert set(re.findall(r"[\"'](RECAP_[A-Z_]*[A-Z])[\"']", code)) == set(VARIABLES)


def test_help_lists_every_variable(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["app.py", "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "app.py"), run_name="__main__")
    assert caught.value.code == 0
    output = " ".join(capsys.readouterr().out.split())
    for name, what in VARIABLES.items():
        assert f"{name} {what}" in output


def test_the_revision_reaches_the_hub(monkeypatch):
    """RECAP_REVISION -> load_target -> what transformers is asked for."""
    asked = []

    def refuse(where, **more):
        asked.append((where, more.get("revision")))
        raise OSError("not here")

    monkeypatch.setattr("recap.targets.loader.AutoConfig.from_pretrained", refuse)
    for environment in ({}, {"RECAP_REVISION": "v2"}):
        settings = Settings.from_environment({"RECAP_MODEL": "owner/model", **environment})
        with pytest.raises(LoadError):
            load_target(settings.model, **settings.load)
    assert asked == [("owner/model", "main"), ("owner/model", "v2")]
