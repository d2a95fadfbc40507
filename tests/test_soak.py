"""A short soak of the real app; `python -m tests.tools.soak` is the long one."""

from __future__ import annotations

import pytest

from tests.tools.soak import soak


@pytest.mark.slow
def test_people_come_and_go_and_nothing_is_wrong():
    report = soak(users=4, seconds=12, warm_s=1, growth=None)
    assert report.wrong == []
    assert report.done["answers"] > 0
    assert len(report.release_s) == 5, "closed pages are let go"
