"""Uploads fit on the disk: of all together and of one address."""

import os
import time

from recap.page import uploads
from recap.page.upload_budget import KEPT_S, UploadBudget


def test_the_oldest_that_no_conversation_needs_make_room(tmp_path):
    files = [tmp_path / name for name in ("old.png", "needed.png", "new.png")]
    budget = UploadBudget(tmp_path, total=3000, share=9000, needed=lambda: {str(files[1])})
    now = time.time()
    for age, file in enumerate(files, start=1):
        assert budget.admit("a", 1000) == ""
        file.write_bytes(bytes(1000))
        os.utime(file, (age + now, age + now))
    assert budget.admit("a", 1000) == ""
    assert [file.exists() for file in files] == [False, True, True]
    assert budget.admit("a", 2000) == ""
    assert [file.exists() for file in files] == [False, True, False]
    assert budget.admit("a", 2001) == "The server's space for uploads is full; try again later."
    assert files[1].exists()


def test_an_address_has_its_share_for_an_hour(tmp_path):
    now = [0.0]
    budget = UploadBudget(tmp_path, total=9000, share=2000, clock=lambda: now[0])
    assert budget.admit("a", 1500) == ""
    assert budget.admit("a", 501).startswith("Your uploads of the last hour have reached")
    assert budget.admit("b", 2000) == ""
    now[0] = KEPT_S + 1
    assert budget.admit("a", 2000) == ""


def test_old_uploads_go_but_not_those_that_came_just_now(tmp_path, monkeypatch):
    """An example's copy keeps the example's mtime; it is not old for that."""
    folder = tmp_path / "recap-uploads"
    folder.mkdir()
    files = [folder / name for name in ("upload.png", "needed.png")]
    for file in files:
        file.write_bytes(b"x")
        os.utime(file, (0, 0))
    monkeypatch.setattr(uploads, "get_upload_folder", lambda: str(folder))
    assert uploads.sweep(older_s=3600) == 0
    later = time.time() + 3601
    monkeypatch.setattr(uploads.time, "time", lambda: later)
    assert uploads.sweep(older_s=3600, needed=[str(files[1])]) == 1
    assert [file.exists() for file in files] == [False, True]
    monkeypatch.setattr(uploads, "get_upload_folder", lambda: str(tmp_path))
    assert uploads.sweep(older_s=0) == 0, "a folder that others use too"
