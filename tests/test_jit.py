"""Where compiled kernels are cached."""

import pytest

from recap import drafters
from recap.drafters import jit, warm


def test_kernels_are_cached_by_the_content_of_the_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("RECAP_CACHE", str(tmp_path / "cache"))
    sources = tmp_path / "sources" / "inner"
    sources.mkdir(parents=True)
    folders = []
    for text in ("a = 1", "a = 1", "a = 2"):
        (sources / "module.py").write_text(text)
        folders.append(jit._kernel_folder(sources.parent))
    assert folders[0].parent == tmp_path / "cache"
    assert folders[0] == folders[1] != folders[2]


def test_without_a_writable_folder_each_process_compiles(monkeypatch):
    monkeypatch.setenv("RECAP_CACHE", "/proc/nothing")
    assert jit._kernel_folder() is None
    monkeypatch.setattr(jit, "KERNEL_FOLDER", None)

    @jit.kernel
    def twice(a):
        return a + a

    assert twice(4) == 8
    assert not jit.is_compiled()


def test_the_drafters_are_made_ready_once_per_process():
    assert warm() == warm() > 0


def test_damaged_kernels_are_compiled_again_with_a_warning(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "kernels"
    folder.mkdir()
    runs = iter([EOFError("Ran out of input"), None])

    def run() -> None:
        if error := next(runs):
            raise error

    monkeypatch.setattr(drafters, "_run_kernels", run)
    monkeypatch.setattr(jit, "is_compiled", lambda: True)
    monkeypatch.setattr(jit, "KERNEL_FOLDER", folder)
    assert warm.__wrapped__() >= 0
    assert not folder.exists()
    assert "damaged" in caplog.text
    monkeypatch.setattr(jit, "is_compiled", lambda: False)
    runs = iter([EOFError("not of the cache"), None])
    with pytest.raises(EOFError):
        warm.__wrapped__()
