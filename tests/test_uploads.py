"""The reader of pictures: what it takes, how it reads it, what it refuses in one sentence, what the page shows."""

from __future__ import annotations

import io
import os
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import Image, ImageCms

from recap.page import uploads
from recap.targets import images
from recap.targets.images import Limits, open_image, read_picture, to_rgb

from . import hostile, tiny

RED, BLUE = (220, 20, 20), (20, 20, 220)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "gradio"))
    yield tmp_path / "gradio"
    images.set_limits(Limits())


def put(where: Path, data: bytes, name: str = "upload.png") -> Path:
    (where / name).write_bytes(data)
    return where / name


def refused(path: Path, match: str, **limits) -> None:
    images.set_limits(Limits(**limits))
    with pytest.raises(ValueError, match=match) as caught:
        read_picture(path)
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
    image = open_image((tmp_path / "x").rename(tmp_path / "x.svg"))
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
    for image in (open_image(tmp_path / "photo.jpg"), Image.open(copy)):
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
    image = open_image(tmp_path / "IMG_1.HEIC")
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
    read = open_image(tmp_path / "x")
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
    picture = read_picture(tmp_path / "x")
    assert near(picture.image.getpixel((5, 5)), RED)
    assert picture.note == (
        "“x” holds several pictures: the first is used."
        if kind == "TIFF"
        else "“x” is animated: its first frame is used."
    )
    assert uploads.for_page([tmp_path / "x"])[1] == picture.note
    frames[0].save(tmp_path / "y", kind)
    assert read_picture(tmp_path / "y").note == ""


@pytest.mark.parametrize("size", [(1, 1), (1, 150), (3000, 1), (2, 9000)])
def test_odd_sizes_are_read_and_shown(size, tmp_path):
    Image.new("RGB", size, RED).save(tmp_path / "x.png")
    assert open_image(tmp_path / "x.png").size == size
    [copy], _ = uploads.for_page([tmp_path / "x.png"])
    assert max(Image.open(copy).size) <= uploads.SHOWN_SIDE


def test_caps_hold_before_anything_is_decoded(tmp_path, monkeypatch):
    path = put(tmp_path, hostile.png(8000, 8000, bytes(100)))
    monkeypatch.setattr(images, "to_rgb", lambda image: pytest.fail("decoded"))
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
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is an EPS drawing"),
        (b"\xff\x0a\xfa\x1f", "is a JPEG XL image, which is not read here; try a PNG"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "is a JPEG XL image"),
        (b"8BPS\0\x01", "is a Photoshop file"),
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
    refused(tmp_path / "gone.png", "there is no such file")
    refused(tmp_path / ("x" * 300), "cannot be read")
    refused(put(tmp_path, b"?", "a\nb\x1b[2J.png"), r"“a\?b\?\[2J.png” is not an image")


def test_malformed_images_are_read_or_refused_and_the_next_one_is_read(tmp_path):
    """Seeded; RECAP_HOSTILE=5000 for the full number."""
    good = put(tmp_path, hostile.base("PNG"), "good.png")
    expected = open_image(good).tobytes()
    images.set_limits(Limits(pixels=4_000_000))
    taken, refusals = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # and no library complains into the log
        for seed in range(hostile.COUNT):
            name, data = hostile.image(seed)
            try:
                picture = read_picture(put(tmp_path, data, name))
            except ValueError as error:
                refusals.append((seed, str(error)))
                continue
            taken += 1
            assert picture.image.mode == "RGB"
            assert picture.image.width * picture.image.height <= 4_000_000
    assert [s for s in refusals if not re.fullmatch(r"“[^\n]+” [^\n]+\.", s[1])] == []
    assert 0 < taken < hostile.COUNT
    assert open_image(good).tobytes() == expected


# From a picture to upright 8-bit sRGB.


def test_every_mode_becomes_rgb():
    half = Image.new("RGBA", (4, 4), (255, 0, 0, 128))
    assert to_rgb(half).getpixel((0, 0)) == (255, 127, 127)
    clear = Image.new("LA", (4, 4), (0, 0))
    assert to_rgb(clear).getpixel((0, 0)) == (255, 255, 255)
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([9, 8, 7] * 256)
    assert to_rgb(palette).getpixel((0, 0)) == (9, 8, 7)
    palette.info["transparency"] = 0
    assert to_rgb(palette).getpixel((0, 0)) == (255, 255, 255)
    deep = Image.fromarray(np.array([[0, 65535], [257, 514]], dtype=np.uint16))
    assert np.asarray(to_rgb(deep))[..., 0].tolist() == [[0, 255], [1, 2]]
    whole = Image.fromarray(np.array([[0, 200]], dtype=np.int32))
    assert np.asarray(to_rgb(whole))[..., 0].tolist() == [[0, 200]]
    share = Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32))
    assert np.asarray(to_rgb(share))[..., 0].tolist() == [[0, 128, 255]]
    for mode in (
        "1",
        "L",
        "CMYK",
        "YCbCr",
        "HSV",
        "LAB",
        "I;16",
        "I",
        "F",
        "PA",
        "RGBa",
        "La",
        "RGBX",
    ):
        assert to_rgb(Image.new(mode, (5, 3))).mode == "RGB", mode
        assert to_rgb(Image.new(mode, (5, 3))).size == (5, 3)


def test_camera_rotation_is_applied():
    upright = Image.new("RGB", (4, 2))
    exif = upright.getexif()
    exif[0x0112] = 6
    upright.info["exif"] = exif.tobytes()
    assert to_rgb(upright).size == (2, 4)


def test_damaged_files_are_refused_and_damaged_exif_is_not():
    file = io.BytesIO()
    tiny.picture(200, 200).save(file, "PNG")
    with pytest.raises(ValueError, match="damaged"):
        to_rgb(Image.open(io.BytesIO(file.getvalue()[:300])))
    odd = Image.new("RGB", (4, 2))
    odd.info["exif"] = b"Exif\x00\x00nonsense"
    assert to_rgb(odd).size == (4, 2)


@pytest.mark.parametrize("mode", ["RGB", "L", "P"])
def test_a_transparent_colour_is_white(mode, tmp_path):
    image = Image.new("RGB", (4, 2), (0, 0, 0))
    image.putpixel((3, 1), (90, 60, 30))
    image = image if mode == "RGB" else image.convert(mode)
    image.save(tmp_path / "x.png", transparency=image.getpixel((0, 0)))
    read = open_image(tmp_path / "x.png")
    assert read.getpixel((0, 0)) == (255, 255, 255)
    assert read.getpixel((3, 1)) == image.convert("RGB").getpixel((3, 1))


def test_a_transparent_grey_of_16_bits_is_white(tmp_path):
    samples = np.array([[0, 65535], [300, 514]], dtype=np.uint16)
    Image.fromarray(samples).save(tmp_path / "x.png", transparency=300)
    assert np.asarray(open_image(tmp_path / "x.png"))[..., 0].tolist() == [[0, 255], [255, 2]]


def test_a_transparent_colour_of_16_bits_is_white(tmp_path):
    """RGB with 16 bits and tRNS: Pillow cuts the pixels to 8 bits, and not the transparent colour."""
    pixels = np.array([[[0x1234, 0x5678, 0x9ABC], [0x4000, 0x2000, 0x1000]]], dtype=">u2")
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    data = hostile.png(2, 1, lines, depth=16)
    at = data.index(b"IDAT") - 4
    body = b"tRNS" + pixels[0, 0].tobytes()
    chunk = struct.pack(">I", 6) + body + struct.pack(">I", zlib.crc32(body))
    read = open_image(data[:at] + chunk + data[at:])
    assert np.asarray(read).tolist() == [[[255, 255, 255], [0x40, 0x20, 0x10]]]


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
def test_greys_use_their_significant_bits(bits, tmp_path):
    top = 2**bits - 1
    Image.fromarray(np.array([[0, top // 2, top]], dtype=np.uint16)).save(tmp_path / "x.png")
    assert np.asarray(open_image(tmp_path / "x.png"))[0, :, 0].tolist() == [0, 127, 255]


def profile(*primaries: tuple[float, float, float], gamma: float = 2.2) -> bytes:
    """A minimal ICC profile of an RGB display, by the XYZ of its primaries (D50)."""

    def xyz(values) -> bytes:
        return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(v * 65536) for v in values))

    text = b"desc\0\0\0\0" + struct.pack(">I", 5) + b"wide\0" + bytes(78)
    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256)) + bytes(2)
    tags = {b"desc": text + bytes(-len(text) % 4), b"wtpt": xyz((0.9642, 1.0, 0.8249))}
    tags |= {name: xyz(p) for name, p in zip((b"rXYZ", b"gXYZ", b"bXYZ"), primaries, strict=True)}
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve)
    table, data, start = struct.pack(">I", len(tags)), b"", 128 + 4 + 12 * len(tags)
    for name, tag in tags.items():
        table += name + struct.pack(">II", start + len(data), len(tag))
        data += tag
    size = start + len(data)
    head = struct.pack(">II", size, 0) + struct.pack(">I", 0x02100000) + b"mntrRGB XYZ "
    return (
        head
        + bytes(12)
        + b"acsp"
        + bytes(28)
        + struct.pack(">3i", 63190, 65536, 54061)
        + bytes(48)
        + table
        + data
    )


WIDE = profile((0.5151, 0.2412, -0.0011), (0.2919, 0.6922, 0.0419), (0.1572, 0.0666, 0.7841))
"""Display P3's primaries."""


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_colour_profiles_are_converted_to_srgb(mode, tmp_path):
    image = Image.new("RGB", (4, 4), (200, 100, 50)).convert(mode, palette=Image.Palette.ADAPTIVE)
    image.save(tmp_path / "x.png", icc_profile=WIDE)
    red, green, blue = open_image(tmp_path / "x.png").getpixel((1, 1))
    assert red > 206, "P3's red is more than sRGB's"
    assert green < 100
    assert blue < 50
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image.save(tmp_path / "y.png", icc_profile=srgb)
    assert open_image(tmp_path / "y.png").getpixel((1, 1)) == (200, 100, 50)


@pytest.mark.parametrize("broken", [b"no profile", WIDE[:200], WIDE])
@pytest.mark.parametrize("mode", ["CMYK", "L", "RGB"])
def test_a_profile_that_is_broken_or_for_another_mode_is_ignored(mode, broken, tmp_path):
    if mode == "RGB" and broken is WIDE:
        pytest.skip("this one is sound")
    halves().convert(mode).save(tmp_path / "x.tiff", icc_profile=broken)
    halves().convert(mode).save(tmp_path / "y.tiff")
    assert open_image(tmp_path / "x.tiff").tobytes() == open_image(tmp_path / "y.tiff").tobytes()


@pytest.mark.parametrize("kind", ["JPEG2000", "ICO", "AVIF"])
def test_rarer_formats_are_read(kind, tmp_path):
    halves((64, 64)).save(tmp_path / "x", kind)
    image = open_image(tmp_path / "x")
    assert (image.mode, image.size) == ("RGB", (64, 64))
    assert near(image.getpixel((10, 20)), RED)
    assert near(image.getpixel((50, 20)), BLUE)


def test_bytes_are_read_like_a_file():
    assert open_image(hostile.base("PNG")).size == (40, 30)
    with pytest.raises(ValueError, match=r"^“the image of sample 7” is not an image; try"):
        open_image(b"words", "the image of sample 7")
