"""What the training stages share: a wall-clock schedule, checkpoints, the optimizer.

Pictures and dialogues depend on seeds alone. How many of them are used depends on the machine's speed,
because the learning rate falls to zero over a budget of minutes.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass
class Clock:
    """The learning rate by elapsed time: a short warm-up by steps, flat, then linear to zero."""

    minutes: float
    peak: float
    warm: int = 150
    flat: float = 0.25
    step: int = 0
    before: float = 0.0  # seconds used by earlier runs of this stage
    start: float = field(default_factory=time.time)

    @property
    def elapsed(self) -> float:
        """Seconds of training so far, including those before a resume."""
        return self.before + time.time() - self.start

    @property
    def done(self) -> bool:
        """Whether the budget is used up."""
        return self.elapsed >= self.minutes * 60

    def rate(self) -> float:
        """The learning rate now."""
        used = min(1.0, self.elapsed / (self.minutes * 60))
        fall = min(1.0, (1 - used) / (1 - self.flat))
        return self.peak * min(1.0, (self.step + 1) / self.warm) * fall


def save(path: Path, clock: Clock, **states) -> None:
    """Write a checkpoint completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save({"step": clock.step, "elapsed": clock.elapsed, **states}, part)
    os.replace(part, path)


def load(path: Path, clock: Clock | None = None) -> dict | None:
    """Read a checkpoint, if there is one, and set the clock to it."""
    if not path.exists():
        return None
    state = torch.load(path, weights_only=True)
    if clock is not None:
        clock.step, clock.before, clock.start = state["step"], state["elapsed"], time.time()
    return state


class Optimizer:
    """Muon for the matrices of the blocks, AdamW for everything else."""

    def __init__(self, named: list[tuple[str, torch.nn.Parameter]], peak: float) -> None:
        deep = [p for n, p in named if p.dim() == 2 and ("blocks." in n or "layers." in n)]
        chosen = {id(p) for p in deep}
        rest = [p for _, p in named if id(p) not in chosen]
        flat = [p for p in rest if p.dim() < 2]
        wide = [p for p in rest if p.dim() >= 2]
        self.muon = torch.optim.Muon(
            deep, lr=peak, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"
        )
        groups = [{"params": wide, "weight_decay": 0.05}, {"params": flat, "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98), fused=True)
        self.parameters = [p for _, p in named]

    def step(self, rate: float) -> None:
        """One step, gradients clipped: Muon at `rate`, AdamW at half of it."""
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.muon.param_groups:
            group["lr"] = rate
        for group in self.adam.param_groups:
            group["lr"] = rate / 2
        for opt in (self.muon, self.adam):
            opt.step()
            opt.zero_grad(set_to_none=True)

    def state_dict(self) -> dict:
        return {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
