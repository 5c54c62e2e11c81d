"""Image files with something wrong, and sound ones of odd kinds. Seeded."""

import io
import random
import struct
import zlib
from collections.abc import Callable, Sequence

from mutated_bytes import spoiled
from PIL import Image, ImageDraw

_MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F", "LAB", "YCbCr"),
    "WEBP": ("RGB", "RGBA"),
    "GIF": ("P", "L"),
    "BMP": ("RGB",),
}
_SUFFIXES = {"PNG": "png", "JPEG": "jpg", "TIFF": "tif", "WEBP": "webp", "GIF": "png", "BMP": "png"}


def picture(chance: random.Random, mode: str = "RGB", size: tuple[int, int] = (160, 60)) -> Image.Image:
    """A few words, in the mode."""
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).text((5, 5), f"Words {chance.randrange(10**6)}", fill=0, font_size=20)
    return converted(image, mode)


def converted(image: Image.Image, mode: str) -> Image.Image:
    if mode in ("LAB", "YCbCr", "PA", "LA"):
        rgb = image.convert("RGB") if mode != "LA" else image
        return rgb.convert(mode) if mode != "LAB" else Image.merge("LAB", [image] * 3)
    return image.convert("I").convert(mode) if mode == "I;16" else image.convert(mode)


def odd(chance: random.Random) -> tuple[str, bytes]:
    """A sound file of an odd kind; its suffix."""
    kind = chance.choice(list(_MODES))
    mode = chance.choice(_MODES[kind])
    sizes = ((160, 60), (1, 1), (1, 300), (9, 9), (700, 8), (300, 2), (60, 160), (64, 64))
    image = picture(chance, mode, chance.choice(sizes))
    options: dict[str, object] = {}
    if kind in ("JPEG", "PNG", "WEBP", "TIFF") and chance.random() < 0.5:
        exif = Image.Exif()
        exif[0x0112] = chance.choice((1, 2, 3, 4, 5, 6, 7, 8) if kind == "TIFF" else (0, 3, 5, 6, 8, 9, 255))
        options["exif"] = exif
    if kind == "TIFF":
        options["compression"] = chance.choice((None, "tiff_lzw", "tiff_deflate", "packbits"))
        if chance.random() < 0.3:
            others = [picture(chance, mode, chance.choice(sizes)) for _ in range(chance.choice((1, 5)))]
            options |= {"save_all": True, "append_images": others}
    if kind == "JPEG":
        options |= {"progressive": chance.random() < 0.5, "quality": chance.choice((1, 50, 100))}
    out = io.BytesIO()
    image.save(out, kind, **options)
    return _SUFFIXES[kind], out.getvalue()


def claimed_png(chance: random.Random) -> tuple[str, bytes]:
    """A PNG that says it is of another size than its data, a bomb mostly."""
    sides = (0, 1, 3, 100_000, 2**31 - 1, 2**32 - 1, 30_000)
    width, height = chance.choice(sides), chance.choice(sides)
    head = struct.pack(
        ">IIBBBBB",
        width,
        height,
        chance.choice((1, 8, 16, 3)),
        chance.choice((0, 2, 3, 6, 9)),
        0,
        0,
        chance.choice((0, 1)),
    )
    data = zlib.compress(bytes(chance.choice((10, 100_000))))
    chunks = [(b"IHDR", head), (b"IDAT", data), (b"IEND", b"")]
    if chance.random() < 0.4:
        text = zlib.compress(bytes(chance.choice((1 << 20, 1 << 27))), 9)
        chunks.insert(1, chance.choice(((b"zTXt", b"a\0\0" + text), (b"iCCP", b"a\0\0" + text), (b"tRNS", text))))
    packed = [struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks]
    return "png", b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def mad_tiff(chance: random.Random) -> tuple[str, bytes]:
    """A TIFF of tags that do not fit each other; chains of directories that come back to themselves."""
    order = chance.choice(("<", ">"))
    numbers = (0, 1, 8, 65535, 2**31, 2**32 - 1, 100_000, 300)
    tags = chance.sample(
        (254, 256, 257, 258, 259, 262, 273, 274, 277, 278, 279, 282, 284, 317, 320, 330, 338, 339, 34665, 34675), 12
    )
    if chance.random() < 0.8:
        tags = sorted({*tags, 256, 257, 258, 259, 262, 273, 278, 279})
    entries = b""
    for tag in tags:
        value = {256: 60, 257: 40, 258: 8, 259: 1, 262: 1, 273: 8, 278: 40, 279: 2400}.get(tag, 1)
        if chance.random() < 0.3:
            value = chance.choice(numbers)
        many = 1 if chance.random() < 0.85 else chance.choice(numbers)
        entries += struct.pack(order + "HHII", tag, chance.choice((3, 4, 4, 4, 5, 2, 12, 99)), many, value)
    following = chance.choice((0, 8, 8, 2**32 - 1, 20))
    body = struct.pack(order + "H", len(tags)) + entries + struct.pack(order + "I", following) + bytes(2400)
    return "tiff", (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8) + body


def many_frames(chance: random.Random) -> tuple[str, bytes]:
    """A TIFF of many tiny frames."""
    frames = [Image.new("1", (chance.choice((8, 9, 30)), 9), 1) for _ in range(chance.choice((20, 60)))]
    out = io.BytesIO()
    frames[0].save(out, "TIFF", save_all=True, append_images=frames[1:])
    return "tif", out.getvalue()


def long_strip(chance: random.Random) -> tuple[str, bytes]:
    """1 x 100,000 pixels, or so."""
    size = (chance.choice((1, 2, 12)), chance.choice((20_000, 60_000)))
    out = io.BytesIO()
    kind = chance.choice(("PNG", "TIFF", "JPEG"))
    Image.new("L", size if chance.random() < 0.5 else size[::-1], 200).save(out, kind)
    return _SUFFIXES[kind], out.getvalue()


MADE: dict[str, Callable[[random.Random], tuple[str, bytes]]] = {
    one.__name__: one for one in (odd, claimed_png, mad_tiff, many_frames, long_strip)
}
_WEIGHTS = (5, 3, 4, 1, 1)


def image_case(chance: random.Random, pool: Sequence[bytes] = ()) -> tuple[str, str, bytes]:
    """What was done, the suffix, and the bytes; `pool` holds whole image files."""
    (name,) = chance.choices(list(MADE), _WEIGHTS)
    suffix, data = MADE[name](chance)
    if pool and chance.random() < 0.2:
        name, suffix, data = "real", chance.choice(("png", "jpg", "tif")), chance.choice(pool)
    if name != "many_frames" and chance.random() < 0.6:
        how, data = spoiled(data, chance, pool)
        name += "+" + how
    return name, suffix, data
