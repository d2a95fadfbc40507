"""A short soak of the real app; `python -m tests.tools.crowd` is the long one."""

from __future__ import annotations

import pytest

from tests.tools.crowd import PageUser
from tests.tools.soak import User, soak


@pytest.mark.slow
def test_people_come_and_go_and_nothing_is_wrong():
    report = soak([PageUser, User, PageUser, User], seconds=15, warm_s=1, growth=None)
    assert report.wrong == []
    assert report.done["answers"] > 0
    assert report.done["answers on pages"] > 0
    assert len(report.release_s) == 5, "closed pages are let go"
