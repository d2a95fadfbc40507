"""Uploads: what is taken, how it is read, and what is refused in one sentence."""

from __future__ import annotations

import io
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from recap.page import uploads
from recap.page.uploads import Limits

from . import hostile

RED, BLUE = (220, 20, 20), (20, 20, 220)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "gradio"))
    return tmp_path / "gradio"


def put(where: Path, data: bytes, name: str = "upload.png") -> Path:
    (where / name).write_bytes(data)
    return where / name


def refused(path: Path, match: str, **limits) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        uploads.read(path, Limits(**limits) if limits else None)
    assert re.fullmatch(r"“[^\n]+” [^\n]+\.", str(caught.value))


def halves(size=(60, 40)) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image


def near(pixel, colour) -> bool:
    return all(abs(a - b) < 40 for a, b in zip(pixel, colour, strict=True))


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_every_format_is_known_by_its_bytes(kind, tmp_path):
    """The name says nothing: each is called .svg here."""
    halves().save(tmp_path / "x", kind)
    image = uploads.read((tmp_path / "x").rename(tmp_path / "x.svg")).image
    assert (image.mode, image.size) == ("RGB", (60, 40))
    assert near(image.getpixel((10, 20)), RED)
    assert near(image.getpixel((50, 20)), BLUE)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_read_and_shown_upright(orientation, tmp_path):
    """A camera's eight orientations all show the same picture: red left, blue right, a white corner."""
    upright = halves()
    upright.paste("white", (0, 0, 8, 8))
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = "where I live"
    stored.save(tmp_path / "photo.jpg", quality=95, exif=exif)
    [copy], note = uploads.for_page([tmp_path / "photo.jpg"])
    assert note == ""
    for image in (uploads.read(tmp_path / "photo.jpg").image, Image.open(copy)):
        assert image.size == (60, 40)
        assert near(image.getpixel((3, 3)), (255, 255, 255))
        assert near(image.getpixel((10, 30)), RED)
        assert near(image.getpixel((50, 30)), BLUE)
        assert not dict(image.getexif())
    assert b"where I live" not in Path(copy).read_bytes()


def test_a_phones_heic_is_upright(tmp_path):
    """As a phone writes it: the sensor's rows, a rotation box, and the same in EXIF."""
    stored = halves().transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = pillow_heif.HeifFile()
    file.add_frombytes("RGB", stored.size, stored.tobytes())
    file[0].info["exif"] = exif.tobytes()
    file.save(tmp_path / "IMG_1.HEIC")
    assert b"irot" in (tmp_path / "IMG_1.HEIC").read_bytes()
    image = uploads.read(tmp_path / "IMG_1.HEIC").image
    assert image.size == (60, 40)
    assert near(image.getpixel((10, 20)), RED)
    [copy], _ = uploads.for_page([tmp_path / "IMG_1.HEIC"])
    assert Path(copy).suffix in (".png", ".jpeg")  # a browser cannot show HEIC


def modes() -> dict[str, tuple[Image.Image, str]]:
    grey16 = Image.fromarray((np.linspace(0, 65535, 60 * 40).reshape(40, 60)).astype(np.uint16))
    alpha = halves().convert("RGBA")
    alpha.putalpha(0)
    palette = halves().convert("P", palette=Image.Palette.ADAPTIVE)
    clear = palette.copy()
    clear.info["transparency"] = palette.getpixel((0, 0))
    return {
        "CMYK": (halves().convert("CMYK"), "TIFF"),
        "CMYK JPEG": (halves().convert("CMYK"), "JPEG"),
        "16-bit": (grey16, "PNG"),
        "float": (Image.fromarray(np.linspace(0, 1, 2400, dtype="f4").reshape(40, 60)), "TIFF"),
        "grey": (halves().convert("L"), "PNG"),
        "bits": (halves().convert("1"), "PNG"),
        "alpha": (alpha, "PNG"),
        "grey alpha": (alpha.convert("LA"), "PNG"),
        "palette": (palette, "PNG"),
        "clear palette": (clear, "GIF"),
        "YCbCr": (halves().convert("YCbCr"), "JPEG"),
        "LAB": (halves().convert("LAB"), "TIFF"),
    }


@pytest.mark.parametrize("mode", modes())
def test_every_mode_becomes_what_a_person_would_see(mode, tmp_path):
    image, kind = modes()[mode]
    image.save(tmp_path / "x", kind)
    read = uploads.read(tmp_path / "x").image
    assert (read.mode, read.size) == ("RGB", (60, 40))
    left, right = read.getpixel((10, 39)), read.getpixel((50, 39))
    if mode in ("alpha", "grey alpha"):  # nothing to see: white, not black
        assert left == right == (255, 255, 255)
    elif mode == "clear palette":
        assert left == (255, 255, 255)
        assert near(right, BLUE)
    elif mode in ("16-bit", "float"):
        assert read.getpixel((0, 0))[0] < 10
        assert read.getpixel((59, 39))[0] > 245
        assert 110 < read.getpixel((30, 20))[0] < 150
    elif mode in ("CMYK", "CMYK JPEG", "palette", "YCbCr"):
        assert near(left, RED)
        assert near(right, BLUE)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_several_frames_the_first_is_used_and_that_is_said(kind, tmp_path):
    frames = [Image.new("RGB", (30, 20), colour) for colour in (RED, BLUE, (0, 0, 0))]
    frames[0].save(tmp_path / "x", kind, save_all=True, append_images=frames[1:])
    picture = uploads.read(tmp_path / "x")
    assert near(picture.image.getpixel((5, 5)), RED)
    assert picture.note == (
        "“x” holds several pictures: the first is used."
        if kind == "TIFF"
        else "“x” is animated: its first frame is used."
    )
    assert uploads.for_page([tmp_path / "x"])[1] == picture.note
    frames[0].save(tmp_path / "y", kind)
    assert uploads.read(tmp_path / "y").note == ""


@pytest.mark.parametrize("size", [(1, 1), (1, 150), (3000, 1), (2, 9000)])
def test_odd_sizes_are_read_and_shown(size, tmp_path):
    Image.new("RGB", size, RED).save(tmp_path / "x.png")
    assert uploads.read(tmp_path / "x.png").image.size == size
    [copy], _ = uploads.for_page([tmp_path / "x.png"])
    assert max(Image.open(copy).size) <= uploads.SHOWN_SIDE


def test_caps_hold_before_anything_is_decoded(tmp_path, monkeypatch):
    path = put(tmp_path, hostile.png(8000, 8000, bytes(100)))
    monkeypatch.setattr(uploads, "to_rgb", lambda image: pytest.fail("decoded"))
    refused(path, r"has 64 million pixels .8000 x 8000., and 50 million are the most")
    refused(put(tmp_path, hostile.png(2**31 - 1, 2**31 - 1)), "pixels")
    refused(put(tmp_path, bytes(3_000_000)), r"has 3\.0 MB, and 1 MB are the most", bytes=1_000_000)


def test_a_frame_larger_than_its_header_is_caught(tmp_path):
    big, out = Image.new("P", (300, 300)), io.BytesIO()
    big.save(out, "GIF")
    data = bytearray(out.getvalue())
    data[6:10] = b"\x02\x00\x02\x00"  # the logical screen: 2 x 2
    path = put(tmp_path, bytes(data))
    refused(path, "pixels", pixels=10_000)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "is empty"),
        (hostile.SVG, "is an SVG drawing"),
        (b"\n <svg width='1'>", "is an SVG drawing"),
        (b"%PDF-1.7", "is a PDF"),
        (b"<!DOCTYPE html><p>", "is a web page"),
        (b"\0\0\0\x20ftypisom" + bytes(40), "is a video"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not an image"),
        (b"words", "is not an image"),
        (b"GIF89a" + hostile.SVG, "SVG|damaged|pixels"),
        (b"\xff\xd8\xff\xe0" + bytes(20), "is not an image|damaged"),
    ],
)
def test_what_is_no_image_is_named(data, match, tmp_path):
    refused(put(tmp_path, data), match)
    assert uploads.for_page([tmp_path / "upload.png"]) == ([], "")


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_a_truncated_file_is_refused(kind, tmp_path):
    data = hostile.base(kind)
    refused(put(tmp_path, data[: len(data) * 2 // 3]), "damaged|not an image|not read here")


def test_only_pixels_of_a_polyglot_reach_the_page(tmp_path):
    path = put(tmp_path, hostile.base("PNG") + hostile.SVG + b"PK\x03\x04", "x.svg")
    [copy], _ = uploads.for_page([path])
    assert b"<svg" not in Path(copy).read_bytes()
    assert Path(copy).suffix == ".png"


def test_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is not a file")  # and nothing waits for the pipe
    refused(tmp_path, "is not a file")
    refused(tmp_path / "gone.png", "cannot be read")
    refused(tmp_path / ("x" * 300), "cannot be read")
    refused(put(tmp_path, b"?", "a\nb\x1b[2J.png"), r"“a\?b\?\[2J.png” is not an image")


def test_malformed_images_are_read_or_refused_and_the_next_one_is_read(tmp_path):
    """Seeded; RECAP_HOSTILE=5000 for the full number."""
    good = put(tmp_path, hostile.base("PNG"), "good.png")
    expected = uploads.read(good).image.tobytes()
    taken, said = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # and no library complains into the log
        for seed in range(hostile.COUNT):
            name, data = hostile.image(seed)
            try:
                picture = uploads.read(put(tmp_path, data, name), Limits(pixels=4_000_000))
            except ValueError as error:
                said.append((seed, str(error)))
                continue
            taken += 1
            assert picture.image.mode == "RGB"
            assert picture.image.width * picture.image.height <= 4_000_000
    assert [s for s in said if not re.fullmatch(r"“[^\n]+” [^\n]+\.", s[1])] == []
    assert 0 < taken < hostile.COUNT
    assert uploads.read(good).image.tobytes() == expected
