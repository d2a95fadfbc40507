"""A benchmark's rows on disk as they come, and what is needed to go on after an interruption.

FILE.ndjson holds one line of settings and then one line a row. FILE.ndjson.state holds what the decoders
remember and how far the rows go; it is ours alone, is written every minute and at the end, and is removed
when the run is complete. An interrupted and resumed run therefore measures what an undisturbed one would.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SAVE_S = 60.0
"""At most so many seconds of measuring are lost to a crash."""

THRIFT = 50.0
"""What decoders remember is copied after a sample only if that takes less than 1 / THRIFT of the time."""


class Record:
    """Rows of one run. path: None keeps them in memory alone.

    done: samples measured (repeats counted). runners: decoder -> its state, when a run is taken up.
    about: what else the first line holds; a resumed run has it from the first one. Raises ValueError
    with one sentence where the file belongs to another run.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        settings: dict[str, Any] | None = None,
        resume: bool = False,
        thrift: float = THRIFT,
    ) -> None:
        self.path, self.thrift = path, thrift
        self.settings = json.loads(json.dumps(settings or {}, default=str))
        self.rows: list[dict[str, Any]] = []
        self.done = 0
        self.runners: dict[str, Any] | None = None
        self.about: dict[str, Any] = {}
        self._saved_at = self._copied_at = time.monotonic()
        self._copying_s = 0.0
        self._last: tuple[int, int, bytes] | None = None
        self._begun = False
        if path is None:
            return
        self._state = _state(path)
        if resume:
            self._take_up()
        elif self._state.is_file():
            raise ValueError(
                f"{path} holds an interrupted run: go on with --resume, or remove {self._state}."
            )
        else:
            path.unlink(missing_ok=True)

    @staticmethod
    def interrupted(path: Path) -> bool:
        """Whether an interrupted run is there that can be taken up."""
        return _state(path).is_file()

    def _take_up(self) -> None:
        try:
            saved = pickle.loads(self._state.read_bytes())
            lines = self.path.read_text(encoding="utf-8").splitlines()
            head, *rows = (json.loads(line) for line in lines[: saved["lines"]])
        except FileNotFoundError:
            raise ValueError(
                f"There is no interrupted run in {self.path}: nothing to resume."
            ) from None
        except (
            Exception
        ) as error:  # cut off, or made by another version: unpickling raises anything
            raise ValueError(
                f"The interrupted run in {self.path} cannot be read ({error}): remove {self._state}."
            ) from None
        for name, value in self.settings.items():
            if head["settings"].get(name) != value:
                raise ValueError(
                    f"The interrupted run had another setting of {name.replace('_', ' ')} "
                    f"({head['settings'].get(name)}, now {value}): resume with the same ones."
                )
        self.rows, self.about, self.done = rows, head["about"], saved["done"]
        self.runners = pickle.loads(saved["runners"])
        self.path.write_text(
            "".join(line + "\n" for line in lines[: saved["lines"]]), encoding="utf-8"
        )
        self._begun = True
        self._last = (saved["done"], saved["lines"], saved["runners"])

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write down the rows of one more sample."""
        self.rows += rows
        self.done += 1
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            if not self._begun:
                head = {"settings": self.settings, "about": self.about}
                file.write(json.dumps(head, default=str) + "\n")
                self._begun = True
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def save(self, runners: dict[str, Any] | None, *, now: bool = False) -> None:
        """Keep what the decoders remember after the rows so far, on disk once a minute or `now`.

        runners: None writes what was copied last (in an interruption their state is half a sample on).
        Rows behind that copy are measured again.
        """
        if self.path is None:
            return
        begun = time.monotonic()
        if runners is not None and begun - self._copied_at >= self.thrift * self._copying_s:
            self._last = (self.done, len(self.rows) + 1, pickle.dumps(runners))
            self._copied_at = time.monotonic()
            self._copying_s = self._copied_at - begun
        if self._last is None or not (now or time.monotonic() - self._saved_at > SAVE_S):
            return
        done, lines, state = self._last
        part = self._state.with_suffix(".part")
        part.write_bytes(pickle.dumps({"done": done, "lines": lines, "runners": state}))
        part.replace(self._state)
        self._saved_at = time.monotonic()

    def finish(self) -> None:
        """The run is complete."""
        if self.path is not None:
            self._state.unlink(missing_ok=True)


def _state(path: Path) -> Path:
    return path.with_suffix(path.suffix + ".state")
