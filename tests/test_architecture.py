"""The arrows between the rooms of `recap/`, held over the source with `ast`. docs/architecture.md draws them.

Each rule is a function from a source tree to its violations. Each is also run on a small source tree that
breaks it, so that a rule that finds nothing is known to look.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RECORDS = {"trace", "predictions"}
ENGINE = {"engine", "conversation", "compare", "pass_timing", "options"}
MAY_IMPORT = {  # room -> the rooms below it
    "records": set(),
    "drafters": {"records"},
    "targets": {"records"},
    "engine": {"drafters", "targets", "records"},
    "server": {"engine", "drafters", "targets", "records"},
    "page": {"server", "engine", "drafters", "targets", "records"},
    "bench": {"engine", "drafters", "targets", "records"},
    "cli": {"bench", "engine", "drafters", "targets", "records"},
    "space": {"page", "server", "targets"},
    "demo": {"targets"},
    "public names": {"engine", "drafters", "targets", "records"},  # recap/__init__.py
}
ONLY_IN = {  # library -> the rooms that may import it
    "gradio": {"page"},
    "plotly": {"page"},
    "torch": {"targets", "engine", "server", "bench", "cli", "demo"},
    "transformers": {"targets", "engine", "bench", "demo"},
}
LAZY = {  # imports of our own inside a function -> why they wait
    "recap.targets -> recap.targets.loader": "`import recap` stays free of transformers (seconds)",
    "recap.bench.command -> recap.bench.experiment": "`--help` and `ask` do not load what measures",
}


@dataclass(frozen=True)
class Import:
    """An import of `target` by module `source`. names: what it takes. lazy: inside a function."""

    source: str
    target: str
    names: tuple[str, ...]
    lazy: bool


class Tree:
    """A package's modules by dotted name, and their imports.

    Imports under `TYPE_CHECKING` count like all others: a type needs the arrow as much as a call does.
    """

    def __init__(self, texts: dict[str, str]) -> None:
        """texts: source by path, such as "recap/page/layout.py"."""
        self.modules: dict[str, ast.Module] = {}
        self.packages: set[str] = set()
        for path, text in texts.items():
            name = path.removesuffix(".py").replace("/", ".")
            if name.endswith(".__init__"):
                name = name.removesuffix(".__init__")
                self.packages.add(name)
            self.modules[name] = ast.parse(text)

    @cached_property
    def imports(self) -> list[Import]:
        return [found for name, tree in self.modules.items() for found in self._of(name, tree)]

    @property
    def own(self) -> list[Import]:
        """Imports between our own modules."""
        return [found for found in self.imports if found.target in self.modules]

    def _of(self, name: str, node: ast.AST, lazy: bool = False) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(name, alias.name, (), lazy)
            elif isinstance(child, ast.ImportFrom):
                base = self._base(name, child)
                for alias in child.names:
                    inner = f"{base}.{alias.name}"
                    is_module = inner in self.modules
                    names = () if is_module else (alias.name,)
                    yield Import(name, inner if is_module else base, names, lazy)
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from self._of(name, child, lazy or is_function)

    def _base(self, name: str, node: ast.ImportFrom) -> str:
        """The module that `from X import ...` names, relative dots resolved."""
        if not node.level:
            return node.module or ""
        parts = name.split(".") if name in self.packages else name.split(".")[:-1]
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])


def room(module: str) -> str:
    """The room of a module: `recap.server.queue` -> server, `recap.trace` -> records."""
    parts = module.split(".")
    if len(parts) == 1:
        return "public names"
    for name, modules in (("records", RECORDS), ("engine", ENGINE), ("cli", {"__main__"})):
        if parts[1] in modules:
            return name
    return parts[1]


def arrows(tree: Tree) -> set[str]:
    """Imports that run up or across the picture."""
    return {
        f"{i.source} -> {i.target}"
        for i in tree.own
        if room(i.source) != room(i.target) and room(i.target) not in MAY_IMPORT[room(i.source)]
    }


def libraries(tree: Tree) -> set[str]:
    """Libraries in a room that must not know them."""
    return {
        f"{i.source} -> {library}"
        for i in tree.imports
        if (library := i.target.partition(".")[0]) in ONLY_IN
        and room(i.source) not in ONLY_IN[library]
    }


def circles(tree: Tree) -> set[str]:
    """Modules that import each other, over any number of steps."""
    below: dict[str, set[str]] = {name: set() for name in tree.modules}
    for found in tree.own:
        below[found.source].add(found.target)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for following in below[waiting.pop()] - seen:
                seen.add(following)
                waiting.append(following)
        return seen

    reach = {name: reached(name) for name in below}
    found = {
        frozenset({a, *(b for b in reach[a] if a in reach[b])}) for a in below if a in reach[a]
    }
    return {" <-> ".join(sorted(circle)) for circle in found}


def lazy_imports(tree: Tree) -> set[str]:
    """Imports of our own inside a function that `LAZY` gives no reason for."""
    return {
        arrow for i in tree.own if i.lazy and (arrow := f"{i.source} -> {i.target}") not in LAZY
    }


def of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def privates(tree: Tree) -> set[str]:
    """Private names of one module that another imports, reads or patches.

    An attribute `_x` counts where it is taken from anything but `self` or `cls` (a subclass may use what it
    inherits), its own module does not define it, and another of our modules does.
    """
    defined = {name: _private_names(module) for name, module in tree.modules.items()}
    ours = set().union(*defined.values())
    found = {
        f"{i.source} imports {i.target}.{name}"
        for i in tree.own
        for name in filter(is_private, i.names)
    }
    for name, module in tree.modules.items():
        for node in ast.walk(module):
            if not isinstance(node, ast.Attribute) or node.attr not in ours - defined[name]:
                continue
            if not of_self(node):
                found.add(f"{name} uses {ast.unparse(node)}")
    return found


def _private_names(module: ast.Module) -> set[str]:
    """Private functions, classes, variables and `self._x` that a module defines."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_self(node):
            found.add(node.attr)
    return set(filter(is_private, found))


RULES: list[Callable[[Tree], set[str]]] = [arrows, libraries, circles, lazy_imports, privates]


@pytest.fixture(scope="module")
def house() -> Tree:
    files = (ROOT / "recap").rglob("*.py")
    return Tree({f.relative_to(ROOT).as_posix(): f.read_text(encoding="utf-8") for f in files})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule, house):
    assert sorted(rule(house)) == []


def test_every_lazy_import_that_is_allowed_is_there(house):
    assert set(LAZY) <= {f"{i.source} -> {i.target}" for i in house.own if i.lazy}


SEEDED = [
    ("arrows", {"recap/server/a.py": "from ..page import b", "recap/page/b.py": ""}),
    ("arrows", {"recap/drafters/a.py": "from ..targets.b import C", "recap/targets/b.py": ""}),
    ("arrows", {"recap/targets/a.py": "import recap.drafters.b", "recap/drafters/b.py": ""}),
    ("arrows", {"recap/engine.py": "from .demo.world import draw", "recap/demo/world.py": ""}),
    ("arrows", {"recap/conversation.py": "def f():\n from .bench import b", "recap/bench/b.py": ""}),
    ("arrows", {"recap/trace.py": "from . import engine", "recap/engine.py": ""}),
    ("libraries", {"recap/server/a.py": "import gradio as gr"}),
    ("libraries", {"recap/engine.py": "from plotly.graph_objects import Figure"}),
    ("libraries", {"recap/drafters/recap/a.py": "def f():\n import torch.nn"}),
    ("libraries", {"recap/drafters/a.py": "from transformers import AutoModel"}),
    ("circles", {"recap/page/a.py": "from . import b", "recap/page/b.py": "from .a import C"}),
    (
        "circles",
        {
            "recap/page/a.py": "from .b import B",
            "recap/page/b.py": "def f():\n from .c import C",
            "recap/page/c.py": "if TYPE_CHECKING:\n from .a import A",
        },
    ),
    ("lazy_imports", {"recap/page/a.py": "def f():\n from . import b", "recap/page/b.py": ""}),
    ("privates", {"recap/page/a.py": "from .b import _c", "recap/page/b.py": "_c = 1"}),
    ("privates", {"recap/page/a.py": "from . import b\nb._c()", "recap/page/b.py": "def _c(): pass"}),
    (
        "privates",
        {
            "recap/page/a.py": "def f(x):\n x.y._c = 1",
            "recap/page/b.py": "class B:\n def f(self):\n  self._c = 1",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "texts"), SEEDED)
def test_a_seeded_violation_is_found(rule, texts):
    found = {r.__name__: r(Tree(texts)) for r in RULES}
    assert found[rule]


def test_what_is_allowed_is_no_violation():
    tree = Tree({
        "recap/page/layout.py": "import gradio\nfrom ..server import queue\nfrom ..trace import Step",
        "recap/server/queue.py": "from ..engine import stream\nqueue._replace()",
        "recap/engine.py": "from .drafters.base import Drafter\nfrom .targets import base",
        "recap/drafters/base.py": "import numpy\nfrom ..trace import Step",
        "recap/targets/base.py": "import torch\nclass A:\n def f(self):\n  return self._x",
        "recap/trace.py": "class Step:\n def f(self, other):\n  self._x = other._x",
    })  # fmt: skip
    assert {rule.__name__: rule(tree) for rule in RULES} == {rule.__name__: set() for rule in RULES}
