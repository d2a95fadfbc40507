"""Initial token embeddings: words start near the marks that name them.

The vision encoder's head has a direction for each mark ("label:Thu"). Added to the embedding of the word's
token, it lets attention match a question's word with its cell from the start.
"""

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

NAMING = {
    "label", "column", "name", "good", "colour", "shape", "word", "shop", "title", "theme", "arrow",
    "size", "board", "trend",
}  # fmt: skip


def words_of(mark: str) -> list[str]:
    """The words that a mark stands for: `words_of("place:top left") -> ["top", "left"]`."""
    group, _, value = mark.partition(":")
    if group in NAMING:
        return [value]
    if group == "place":
        return value.split()
    if group in ("value", "count") and len(value) == 1:
        return [value]
    return [value[0]] if group == "price" else []


def align(
    embedding: Tensor,
    tok: PreTrainedTokenizerFast,
    marks: list[str],
    head: Tensor,
    share: float = 0.8,
) -> Tensor:
    """Token embeddings [V, C] moved towards the head's directions [marks, C], by `share` of the mean norm."""
    gathered: dict[str, list[Tensor]] = {}
    for mark, direction in zip(marks, head - head.mean(0), strict=True):
        for word in words_of(mark):
            gathered.setdefault(word, []).append(direction)
    vocab, out = tok.get_vocab(), embedding.clone()
    step = share * embedding.norm(dim=1).mean()
    for word, directions in gathered.items():
        towards = torch.nn.functional.normalize(torch.stack(directions).mean(0), dim=0) * step
        forms = {f(word) for f in (str, str.lower, str.upper, str.capitalize)} | {f"{word}s"}
        ids = [vocab[t] for f in forms for t in (f, f"\u0120{f}") if t in vocab]
        for i in ids or [tok(word, add_special_tokens=False)["input_ids"][0]]:
            out[i] += towards
    return out
