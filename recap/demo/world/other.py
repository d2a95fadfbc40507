"""Pictures outside the drawn world: noise, blurs, textures, landscapes of soft blobs.

They stand in for photographs in training: the model learns to say that it does not know them.
"""

import io
import math
from random import Random

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

from .board import Board, Picture

SIZES = ((6, 6), (5, 6), (6, 5), (7, 5), (5, 7), (4, 7), (7, 4))


def _colour(rng: Random, low: int = 0, high: int = 255) -> tuple[int, int, int]:
    return tuple(rng.randint(low, high) for _ in range(3))


def _earth(rng: Random) -> tuple[int, int, int]:
    """A muted colour, as most of a photograph is."""
    base = rng.randint(20, 230)
    return tuple(max(0, min(255, base + rng.randint(-45, 45))) for _ in range(3))


def _clouds(rng: Random, w: int, h: int) -> Image.Image:
    """Smooth noise in several octaves."""
    gen = np.random.default_rng(rng.getrandbits(32))
    total = np.zeros((h, w, 3), np.float32)
    a, b = np.array(_earth(rng), np.float32), np.array(_earth(rng), np.float32)
    base, weight = rng.randint(2, 5), 1.0
    for octave in range(rng.randint(2, 5)):
        n = base * 2**octave
        small = gen.integers(0, 256, (n, n, rng.choice((1, 3))), dtype=np.uint8)
        small = np.repeat(small, 3 // small.shape[2], axis=2)
        big = Image.fromarray(small).resize((w, h), Image.Resampling.BICUBIC)
        total += weight * (np.asarray(big, np.float32) / 255 - 0.5)
        weight *= rng.uniform(0.4, 0.8)
    mix = np.clip(total + 0.5, 0, 1)
    return Image.fromarray((a * mix + b * (1 - mix)).clip(0, 255).astype(np.uint8))


def _noise(rng: Random, w: int, h: int) -> Image.Image:
    """Grain, coarse or fine, coloured or grey."""
    gen = np.random.default_rng(rng.getrandbits(32))
    k = rng.choice((1, 4, 8, 16, 32))
    deep = gen.integers(0, 256, (h // k + 1, w // k + 1, rng.choice((1, 3))), dtype=np.uint8)
    deep = np.repeat(deep, 3 // deep.shape[2], axis=2)
    return Image.fromarray(deep).resize(
        (w, h), rng.choice((Image.Resampling.NEAREST, Image.Resampling.BILINEAR))
    )


def _view(rng: Random, w: int, h: int) -> Image.Image:
    """A landscape or an interior: layers, trunks, soft blobs, then grain."""
    image = _clouds(rng, w, h)
    pen = ImageDraw.Draw(image)
    for _ in range(rng.randint(1, 4)):
        y = rng.uniform(0.2, 0.95) * h
        top = [
            (x, y + math.sin(x / w * rng.uniform(2, 9)) * h * rng.uniform(0, 0.1))
            for x in range(0, w + 40, 40)
        ]
        pen.polygon([*top, (w, h), (0, h)], fill=_earth(rng))
    for _ in range(rng.randint(2, 14)):
        x, y = rng.uniform(-0.1, 1) * w, rng.uniform(-0.1, 1) * h
        a, b = rng.uniform(0.03, 0.6) * w, rng.uniform(0.03, 0.6) * h
        fill = _earth(rng) if rng.random() < 0.8 else _colour(rng)
        rng.choice((pen.ellipse, pen.rectangle, pen.ellipse))((x, y, x + a, y + b), fill=fill)
    image = image.filter(ImageFilter.GaussianBlur(rng.choice((2, 5, 10, 20)) * w / 500))
    if rng.random() < 0.7:
        image = Image.blend(image, _clouds(rng, w, h), rng.uniform(0.1, 0.5))
    return ImageEnhance.Contrast(image).enhance(rng.uniform(0.6, 1.6))


def _texture(rng: Random, w: int, h: int) -> Image.Image:
    """Stripes, checks, bricks or dots in perspective-free repetition."""
    image = Image.new("RGB", (w, h), _colour(rng))
    pen = ImageDraw.Draw(image)
    step, other, form = rng.randint(12, 90), _colour(rng), rng.randrange(4)
    for i, x in enumerate(range(-h, w, step)):
        if form == 0:
            pen.rectangle((x, 0, x + step // 2, h), fill=other)
        elif form == 1:
            pen.line((x, 0, x + h, h), fill=other, width=step // 3)
        else:
            for j, y in enumerate(range(0, h, step)):
                box = (x, y, x + step * 0.7, y + step * 0.7)
                if form == 2 and (i + j) % 2:
                    pen.rectangle((x, y, x + step, y + step), fill=other)
                elif form == 3:
                    pen.ellipse(box, fill=other)
    return image.rotate(rng.uniform(0, 90)) if rng.random() < 0.4 else image


def _wash(rng: Random, w: int, h: int) -> Image.Image:
    """A plain colour or a gradient."""
    seed = Image.new("RGB", (2, 2))
    one = _colour(rng)
    seed.putdata([one if rng.random() < 0.3 else _colour(rng) for _ in range(4)])
    return seed.resize((w, h), Image.Resampling.BILINEAR)


def draw(rng: Random, unit: int, fine: int) -> Picture:
    """A picture without facts."""
    rows, cols = rng.choice(SIZES)
    board = Board(rows, cols, unit, fine, (255, 255, 255))
    maker = rng.choices((_view, _clouds, _noise, _texture, _wash), (50, 20, 10, 12, 8))[0]
    image = maker(rng, *board.image.size)
    if rng.random() < 0.2:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=rng.randint(15, 60))
        image = Image.open(buffer).convert("RGB")
    board.image.paste(image)
    return board.done("other", {})
