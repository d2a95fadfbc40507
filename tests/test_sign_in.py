"""People with a name and a password, on the real app over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.tools.browser import started_app

QUESTION = "What can you do?"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    people = {"RECAP_USERS": "Ann:first word, Ben:second:word", "RECAP_MEMORY_SCOPE": "user"}
    log = tmp_path_factory.mktemp("app") / "log.txt"
    with started_app(log, "/healthz", RECAP_MODEL="demo", RECAP_MAX_CONTEXT="300", **people) as (
        address,
        _,
    ):
        yield address
    assert "word" not in log.read_text()


def page(address: str, name: str = "", password: str = "") -> httpx.Client:
    client = httpx.Client(base_url=address, timeout=120)
    if name:
        sent = client.post("/login", data={"username": name, "password": password})
        assert sent.status_code == 200
    return client


def ask(client: httpx.Client, session: str) -> dict[str, Any]:
    """The turn as /chat gives it."""
    body = {"data": [{"text": QUESTION, "files": []}, "recap"], "session_hash": session}
    sent = client.post("/gradio_api/call/chat", json=body)
    sent.raise_for_status()
    answer = client.get(f"/gradio_api/call/chat/{sent.json()['event_id']}")
    event, data = answer.text.strip().split("\n\n")[-1].split("\n")[:2]
    assert event == "event: complete"
    return json.loads(data.removeprefix("data: "))[0]


def test_without_a_name_nothing_is_served(address):
    client = page(address)
    body = {"data": [{"text": QUESTION, "files": []}, "recap"], "session_hash": "nobody-00"}
    assert client.post("/gradio_api/call/chat", json=body).status_code == 401
    assert client.get("/config").status_code == 401
    assert client.get("/healthz").status_code == 200
    for name, password in (("Ann", "second:word"), ("Ann", ""), ("Eve", "first word")):
        sent = client.post("/login", data={"username": name, "password": password})
        assert sent.status_code in (400, 422)
    assert client.post("/gradio_api/call/chat", json=body).status_code == 401


def test_the_memory_is_the_persons_over_pages_and_nobody_elses(address):
    first = ask(page(address, "Ann", "first word"), "ann-page-1")
    again = ask(page(address, "Ann", "first word"), "ann-page-2")
    other = ask(page(address, "Ben", "second:word"), "ben-page-1")
    assert first["token_ids"] == again["token_ids"] == other["token_ids"]
    assert again["passes"] < first["passes"], "her second page knows what the first one saw"
    assert other["passes"] == first["passes"], "his knows nothing of it"


def test_another_persons_conversation_is_not_given_for_its_name(address):
    """A page's name alone opens nothing: it belongs to who is signed in there."""
    ann, ben = page(address, "Ann", "first word"), page(address, "Ben", "second:word")
    ask(ann, "one-page-name")
    assert ask(ann, "one-page-name")["cached_tokens"] > 0, "hers goes on"
    turn = ask(ben, "one-page-name")
    assert turn["cached_tokens"] == 0, "a conversation of his own"


def test_the_longest_conversation_is_a_setting(address):
    """RECAP_MAX_CONTEXT: less than the model takes, and said where it bites."""
    client = page(address, "Ann", "first word")
    body = {"data": [{"text": "word " * 400, "files": []}, "recap"], "session_hash": "ann-long-1"}
    sent = client.post("/gradio_api/call/chat", json=body)
    answer = client.get(f"/gradio_api/call/chat/{sent.json()['event_id']}").text
    assert "event: error" in answer
    assert "takes at most 300: ask a shorter question, or start a new one." in answer
