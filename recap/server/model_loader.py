"""Loads the model in the background, so that the page answers first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..drafters import warm
from ..drafters.recap.tree_size import PassCost
from ..targets.base import Target
from ..targets.catalogue import LoadError


class NotReadyError(RuntimeError):
    """The model is still loading, or could not be loaded; the message says which."""


def sentence_of(error: BaseException) -> str:
    """An error for the page: a LoadError's own sentence, other kinds with their name."""
    text = (str(error).strip().splitlines() or [""])[0]
    return text if isinstance(error, LoadError) else f"{type(error).__name__}: {text}"


class ModelLoader:
    """Loads the target in the background, so that the page answers first.

    measure: times the target's packed pass after loading, so that Recap's trees fit the machine.
    fallback: loads another target if that one cannot be loaded; `note` then says so, for the page.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Target],
        measure: Callable[[Target], PassCost] | None = None,
        fallback: Callable[[], Target] | None = None,
    ) -> None:
        self.name = name
        self.note = ""
        self.error = ""
        self.phase = f"loading the model “{name}”"
        self.seconds = 0.0
        self.cost: PassCost | None = None
        self._target: Target | None = None
        self._load, self._measure, self._fallback = load, measure, fallback
        self._then: list[Callable[[Target], None]] = []
        self._lock = threading.Lock()
        self._done = threading.Event()
        threading.Thread(target=self._run, name="load model", daemon=True).start()

    def _run(self) -> None:
        begun = time.monotonic()
        try:
            warming = threading.Thread(target=warm, name="warm drafters", daemon=True)
            warming.start()
            target = self._first_or_fallback()
            self.phase = "preparing the drafters (compiled once on a machine)"
            warming.join()
            warm()  # says why, if that went wrong warming
            if self._measure is not None:
                self.phase = f"timing the packed pass of “{target.name}” on this machine"
                self.cost = self._measure(target)
            with self._lock:
                for work in self._then:
                    work(target)
                self._target = target
        except Exception as error:  # shown on the page: a server without its model still says why
            self.error = sentence_of(error)
        self.seconds = time.monotonic() - begun
        self._done.set()

    def _first_or_fallback(self) -> Target:
        try:
            return self._load()
        except Exception as error:
            if self._fallback is None:
                raise
            self.note = (
                f"The model “{self.name}” could not be loaded: {sentence_of(error)} "
                "The embedded demo model answers instead."
            )
        self.phase = "loading the embedded demo model instead"
        return self._fallback()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until loading has ended, well or not -> whether it has."""
        return self._done.wait(timeout)

    @property
    def loaded(self) -> bool:
        """The target is there."""
        return self._target is not None

    def then(self, work: Callable[[Target], None]) -> None:
        """Do something with the target as soon as it is there, before anybody is answered by it."""
        with self._lock:
            if self._target is None:
                self._then.append(work)
                return
        work(self._target)

    @property
    def target(self) -> Target:
        """The loaded target. Raises NotReadyError while there is none."""
        if self._target is None:
            if self.error:
                raise NotReadyError(f"The model “{self.name}” could not be loaded: {self.error}")
            raise NotReadyError("The model is still loading; try again in a moment.")
        return self._target
