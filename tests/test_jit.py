"""Where compiled kernels are kept."""

import ast
from pathlib import Path

import pytest

from recap import drafters
from recap.drafters import jit, warm

RECAP = Path(jit.__file__).parent


def test_every_file_with_kernels_is_named():
    """A file that is not named could change without its kernels being compiled anew."""
    found = []
    for file in sorted(RECAP.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {
            decorator.id
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for decorator in function.decorator_list
            if isinstance(decorator, ast.Name)
        }
        if names & {"kernel", "maker"} or file.name == "jit.py":
            found.append(str(file.relative_to(RECAP)))
    assert found == list(jit.KERNELS)


def test_kernels_are_kept_beside_what_was_measured_and_change_their_place_with_the_sources(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("RECAP_CACHE", str(tmp_path))
    folder = jit._kernel_folder()
    assert Path(folder).parent == tmp_path
    assert jit._kernel_folder() == folder
    monkeypatch.setattr(jit, "KERNELS", jit.KERNELS[1:])
    assert jit._kernel_folder() != folder


def test_a_machine_without_a_place_for_them_compiles_in_each_process(monkeypatch):
    monkeypatch.setenv("RECAP_CACHE", "/proc/nothing")
    assert jit._kernel_folder() is None
    monkeypatch.setattr(jit, "_FOLDER", None)

    @jit.kernel
    def twice(a):
        return a + a

    assert twice(4) == 8


def test_the_drafters_are_made_ready_once_a_process():
    assert warm() == warm() > 0


def test_damaged_kernels_are_made_anew_and_it_is_said(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "kernels"
    folder.mkdir()
    uses = iter([EOFError("Ran out of input"), None])

    def use() -> None:
        if error := next(uses):
            raise error

    monkeypatch.setattr(drafters, "_use_all", use)
    monkeypatch.setattr(drafters, "kept", lambda: True)
    monkeypatch.setattr(drafters, "kept_in", lambda: str(folder))
    assert warm.__wrapped__() >= 0
    assert not folder.exists()
    assert "damaged" in caplog.text
    monkeypatch.setattr(drafters, "kept", lambda: False)
    uses = iter([EOFError("not of the cache"), None])
    with pytest.raises(EOFError):
        warm.__wrapped__()
