"""Recap: a training-free speculative decoder for vision-language models.

>>> from recap import Conversation, generate, load_target, make_drafter
>>> target = load_target("demo")                                          # doctest: +SKIP
>>> conversation = Conversation(target)                                   # doctest: +SKIP
>>> conversation.ask("What do you see?", images=[image])                  # doctest: +SKIP
>>> turn = generate(conversation, make_drafter("recap", vocab_size=target.vocab_size))  # doctest: +SKIP
>>> turn.text, turn.tokens_per_pass                                       # doctest: +SKIP
"""

from .conversation import Conversation
from .drafters import DECODERS, make_drafter
from .drafters.recap.config import RecapConfig
from .engine import Answer, generate, stream, trace_lines
from .targets import load_target
from .trace import SourceCount, Step, Turn

__all__ = [
    "DECODERS",
    "Answer",
    "Conversation",
    "RecapConfig",
    "SourceCount",
    "Step",
    "Turn",
    "generate",
    "load_target",
    "make_drafter",
    "stream",
    "trace_lines",
]
