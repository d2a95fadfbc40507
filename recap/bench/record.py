"""A benchmark's answers on disk as they come, so that an interrupted run can be continued.

The file (NDJSON) holds a line of settings, a line per answer, and a last line once the run is complete.
Memories of decoders are not in it: after `--resume` they start empty, and the report says where.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

COMPLETE = {"complete": True}
"""The last line of a complete run."""


class Record:
    """The answers of one run. path: None keeps them in memory alone.

    done: samples measured so far, repeats counted. peers: settings of other libraries' decoders, kept
    over an interruption. resumed_at: values of `done` at which the run was continued. Raises ValueError
    with one sentence where the file belongs to another run.
    """

    def __init__(
        self, path: Path | None, *, settings: dict[str, Any] | None = None, resume: bool = False
    ) -> None:
        self.path = path
        self.settings = json.loads(json.dumps(settings or {}, default=str))
        self.answers: list[dict[str, Any]] = []
        self.done = 0
        self.peers: dict[str, Any] | None = None
        self.resumed_at: list[int] = []
        if path is None:
            return
        if resume:
            self._continue()
        elif interrupted(path):
            raise ValueError(
                f"{path} holds an interrupted run: continue it with --resume, or remove it."
            )
        else:
            path.write_text("", encoding="utf-8")

    def _continue(self) -> None:
        if not interrupted(self.path):
            raise ValueError(f"There is no interrupted run in {self.path}: nothing to resume.")
        head, *answers = _lines(self.path)
        for name, value in self.settings.items():
            if head["settings"].get(name) != value:
                raise ValueError(
                    f"The interrupted run had another setting of {name.replace('_', ' ')} "
                    f"({head['settings'].get(name)}, now {value}): resume with the same ones."
                )
        samples = [list(some) for _, some in groupby(answers, lambda a: (a["repeat"], a["sample"]))]
        whole = samples[:-1]  # the last one may have been cut off: it is measured again
        self.answers = [answer for some in whole for answer in some]
        self.done, self.peers = len(whole), head["peers"]
        self.resumed_at = [*head["resumed_at"], self.done]
        part = self.path.with_suffix(".part")
        part.write_text(_text([self._head(), *self.answers]), encoding="utf-8")
        part.replace(self.path)

    def _head(self) -> dict[str, Any]:
        return {"settings": self.settings, "peers": self.peers, "resumed_at": self.resumed_at}

    def _append(self, lines: Sequence[dict[str, Any]]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_text(lines))

    def add(self, answers: Sequence[dict[str, Any]]) -> None:
        """Write down the answers of one more sample."""
        head = [] if self.done or self.resumed_at else [self._head()]
        self._append([*head, *answers])
        self.answers += answers
        self.done += 1

    def finish(self) -> None:
        """The run is complete."""
        self._append([COMPLETE])


def answers_file(out: Path) -> Path:
    """Where the answers of a run go whose figures go to `out`."""
    return out.with_suffix(".ndjson")


def interrupted(path: Path) -> bool:
    """Whether the file holds a run that began and is not complete."""
    lines = _lines(path) if path.is_file() else []
    return bool(lines) and "settings" in lines[0] and lines[-1] != COMPLETE


def _text(lines: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The file's lines up to the first that was cut off."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines
