"""Recap with one thing changed at a time, and the interval of the difference."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..drafters.recap.config import RecapConfig
from ..drafters.recap.drafter import RecapDrafter
from ..drafters.recap.grow import add_node, advance_match, fetch, mix, start_tree
from ..drafters.token_recycling import static_nodes
from ..drafters.tree import ROOT, CandidateTree, usable
from ..options import budget_from
from ..pass_timing import pass_cost
from ..targets.base import Target
from .bootstrap import interval
from .runners import EngineRunner, Runner
from .tables import Table, decimal, span

WHOLE = "recap"


class StaticTreeDrafter(RecapDrafter):
    """Recap's memories and mixture in Token Recycling's fixed tree: children by rank, whatever their score."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.reserve(len(static_nodes()))

    def propose(self, *, limit: int, record: bool) -> CandidateTree:
        tree = self.tree
        start_tree(tree, self.rules, self.lookup.automaton, *self.tail)
        mixed: dict[int, int] = {}  # static node -> its index in the tree
        if limit > 0 and usable(self.blocked, self.tail[-1]):
            self._mix(ROOT)
            mixed[0] = ROOT
        for number, (parent, rank, depth, _) in enumerate(static_nodes(), start=1):
            above = mixed.get(parent)
            if above is None or depth > limit:
                continue
            count = tree.nodes[above]["count"]
            ranks = [i for i in range(count) if usable(self.blocked, tree.ranked[above, i])]
            if rank >= len(ranks):
                continue
            token = tree.ranked[above, ranks[rank]]
            probability = tree.mixed[above, ranks[rank]]
            score = tree.nodes[above]["score"] * probability
            memories = self.memory.arrays, self.request.arrays
            node = add_node(tree, *memories, above, token, probability, score)
            if not self.terminal[token]:
                advance_match(tree, self.rules, self.lookup.automaton, node)
                self._mix(node)
                mixed[number] = node
        return self.packed(record)

    def _mix(self, node: int) -> None:
        memories = self.memory.arrays, self.request.arrays
        fetch(self.tree, self.rules, *memories, self.lookup.automaton, self.blocked, node)
        mix(self.tree, self.rules, *memories, self.runner_ups, node)


@dataclass(frozen=True, slots=True)
class Ablation:
    """One change of Recap. config: fields that differ. budget: "same", a fixed number, or "auto"."""

    config: dict[str, Any] = field(default_factory=dict)
    cold: bool = False
    budget: str | int = "same"
    drafter: type[RecapDrafter] = RecapDrafter


ABLATIONS: dict[str, Ablation] = {
    WHOLE: Ablation(),
    # so far apart that the candidates of shorter keys only fill what longer ones leave of the budget
    "strict back-off": Ablation({"base_weights": (1.0, 1e-12, 1e-24)}),
    "uniform mixture": Ablation({"base_weights": (1.0, 1.0, 1.0)}),
    "without confidence": Ablation({"confidence": False}),
    "without lookup": Ablation({"lookup": False}),
    "3-token source alone": Ablation({"base_weights": (1.0, 0.0, 0.0)}),
    "2-token source alone": Ablation({"base_weights": (0.0, 1.0, 0.0)}),
    "1-token source alone": Ablation({"base_weights": (0.0, 0.0, 1.0)}),
    "without 3-token source": Ablation({"base_weights": (0.0, 0.2, 0.1)}),
    "without 2-token source": Ablation({"base_weights": (0.7, 0.0, 0.1)}),
    "without 1-token source": Ablation({"base_weights": (0.7, 0.2, 0.0)}),
    "cold persistence": Ablation(cold=True),
    "without runner-ups": Ablation({"runner_up_share": 0.0}),
    "without calibrated acceptance": Ablation({"calibrate": False}),
    "newest prediction alone": Ablation({"newest_share": 1.0}),
    "without seeding": Ablation({"seed_prompt": False}),
    "budget fixed at 15": Ablation(budget=15),
    "budget fixed at 63": Ablation(budget=63),
    "budget by pass time": Ablation(budget="auto"),
    "static tree": Ablation(drafter=StaticTreeDrafter, budget=80),
}


def ablated(options: argparse.Namespace, target: Target) -> dict[str, Runner]:
    """A runner for each ablation; the budget is the command's unless the ablation has its own."""
    runners: dict[str, Runner] = {}
    for name, ablation in ABLATIONS.items():
        own = options.budget if ablation.budget == "same" else str(ablation.budget)
        budget = budget_from(own)
        config = replace(RecapConfig(), **ablation.config)
        if budget is not None:
            config = replace(config, budget=budget)
        cost = pass_cost(target) if budget is None else None
        drafter = ablation.drafter(target.vocab_size, config=config, cost=cost)
        runners[name] = EngineRunner(drafter, cold=ablation.cold)
    return runners


def comparison(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each ablation's tokens per pass and speed, as ratios to Recap's, with intervals.

    The bootstrap draws samples for both at once, so that hard samples do not widen the interval.
    """
    sums: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["decoder"] in ABLATIONS:
            mine = sums.setdefault(row["decoder"], {}).setdefault(row["sample"], [0.0, 0.0, 0.0])
            mine[0] += row["tokens"] - row["prefill_tokens"]
            mine[1] += row["passes"]
            mine[2] += row["decode_s"]
    whole = sums.get(WHOLE, {})
    compared = {}
    for name, mine in sums.items():
        columns = list(zip(*((*mine[s], *whole[s]) for s in mine if s in whole), strict=True))
        compared[name] = {
            "tokens_per_pass": _against(columns, 1),
            "tokens_per_s": _against(columns, 2),
        }
    return compared


def _against(columns: Sequence[Sequence[float]], by: int) -> dict[str, Any]:
    """(tokens / column `by`) of one, divided by that of Recap: value and 95 % interval."""
    four = (columns[0], columns[by], columns[3], columns[3 + by])

    def ratio(a: Any, b: Any, c: Any, d: Any) -> Any:
        return (a / b) / (c / d)

    totals = [sum(column) for column in four]
    value = round(ratio(*totals), 4) if all(totals) else None
    return {"ratio": value, "ratio_95": interval(ratio, *four)}


def comparison_table(compared: dict[str, dict[str, Any]]) -> Table:
    """The ratios, a row per change."""
    rows = []
    for name, ratios in compared.items():
        cells = [name]
        for one in (ratios["tokens_per_pass"], ratios["tokens_per_s"]):
            cells += [decimal(one["ratio"], 3), span(one["ratio_95"])]
        rows.append(cells)
    head = ("change", "tokens per pass against recap", "95 % interval")
    return Table((*head, "tokens/s against recap", "95 % interval"), rows)
