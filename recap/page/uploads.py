"""Uploaded files on the page: copies that a browser can show, and the sweeping of the upload folder.

`targets.images` reads them. `for_page` writes a picture's pixels to a new file, so that a browser gets what
the model reads, upright, and nothing else that was in the upload.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from gradio.processing_utils import save_pil_to_cache
from gradio.utils import get_upload_folder

from ..targets.images import ImageFile

SHOWN_SIDE = 1600
"""Longest side in pixels of an image as the page shows it; the model gets all pixels."""


def for_page(paths: Sequence[str | Path]) -> tuple[list[str], str]:
    """Copies of uploaded images for the page -> (their paths in Gradio's cache, what was left out).

    Files that cannot be read are skipped: asking about them says why.
    """
    copies, notes = [], []
    for path in paths:
        try:
            picture = ImageFile(str(path)).read()
        except ValueError:
            continue
        image = picture.image
        if max(image.size) > SHOWN_SIDE:
            image = image.copy()  # the original is shared
            image.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
        kind = "png" if image.width * image.height <= 500_000 else "jpeg"
        folder = get_upload_folder()
        copies.append(save_pil_to_cache(image, cache_dir=folder, name="image", format=kind))
        notes += [picture.note] if picture.note else []
    return copies, " ".join(notes)


def sweep(*, older_s: float, needed: Collection[str] = ()) -> int:
    """Delete uploads and their copies that are older than so many seconds -> how many.

    needed: paths that conversations may read again; they stay. Only in a folder that this server made for itself (app.py does), never in one that others use too.
    """
    folder = Path(get_upload_folder())
    if not folder.name.startswith("recap-"):
        return 0
    horizon, deleted = time.time() - older_s, 0
    kept = {str(Path(path).resolve()) for path in needed}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            is_old = path.is_file() and since(path) < horizon
            if is_old and str(path.resolve()) not in kept:
                path.unlink()
                deleted += 1
    return deleted


def since(path: Path) -> float:
    """When a file came here, in seconds since 1970. A copy of an example has the example's own mtime."""
    about = path.stat()
    return max(about.st_mtime, about.st_ctime)
