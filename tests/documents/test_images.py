"""Image files are documents: every frame a page, upright, RGB or grey, and untouched where nothing needs to change."""

import io
import struct
import zlib

import numpy as np
import pytest
from pdf_writing import written
from PIL import Image, ImageDraw, ImageFont, TiffImagePlugin, features
from PIL.PngImagePlugin import PngInfo
from test_rendering import opened, pixels, rendered

from llm_ocr.documents.files import kind_by_content, kind_by_name
from llm_ocr.documents.ink import ink_of, pixels_of
from llm_ocr.types import Reason


@pytest.fixture
def picture():
    """Red in its left upper quarter, blue elsewhere: its corners say how it was turned."""
    image = Image.new("RGB", (200, 100), "blue")
    ImageDraw.Draw(image).rectangle((0, 0, 99, 49), fill="red")
    return image


def corner(page):
    red, _, blue = pixels(page).getpixel((page.image.width // 8, page.image.height // 8))
    return "red" if red > blue else "blue"


def test_unchanged_jpeg_passes_through_byte_for_byte(tmp_path, picture):
    path = tmp_path / "a.jpg"
    picture.save(path, quality=71)
    for image_format in ("png", "jpeg"):
        (page,) = rendered(str(path), image_format=image_format)
        assert page.image.data == path.read_bytes()
        assert (page.image.media_type, page.image.width, page.content) == ("image/jpeg", 200, None)


def test_a_jpeg_that_is_too_large_is_scaled_down(tmp_path, picture):
    path = tmp_path / "a.jpg"
    picture.resize((4000, 2000)).save(path)
    (page,) = rendered(str(path), image_format="jpeg", image_size=1000)
    assert (page.image.width, page.image.height, corner(page)) == (1000, 500, "red")


def rotated(picture, path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    picture.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)


def test_a_jpeg_turned_by_exif_is_shown_upright(tmp_path, picture):
    rotated(picture, tmp_path / "a.jpg")
    (page,) = rendered(str(tmp_path / "a.jpg"))
    assert (page.image.width, page.image.height, corner(page)) == (200, 100, "red")


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_unchanged_png_is_passed_on_byte_for_byte(tmp_path, picture, mode):
    about = PngInfo()
    about.add_text("Comment", "bytes that an encoder would not repeat")
    picture.convert(mode).save(tmp_path / "a.png", pnginfo=about)
    (page,) = rendered(str(tmp_path / "a.png"))
    assert page.image.data == (tmp_path / "a.png").read_bytes()
    assert (page.image.media_type, page.image.width, page.image.height) == ("image/png", 200, 100)


def sixteen_bits(picture, path):
    rows = (np.asarray(picture).astype(">u2") * 257).reshape(picture.height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", *picture.size, 16, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


@pytest.mark.parametrize(
    ("write", "options"),
    [
        (rotated, {}),
        (sixteen_bits, {}),
        (lambda picture, path: picture.save(path, transparency=(1, 2, 3)), {}),
        (lambda picture, path: picture.save(path, compress_level=0), {}),
        (lambda picture, path: picture.save(path, save_all=True, append_images=[picture.rotate(180)]), {}),
        (lambda picture, path: picture.resize((400, 200)).save(path), {"image_size": 200}),
        (lambda picture, path: picture.save(path), {"image_format": "jpeg"}),
    ],
    ids=["rotated", "16 bits", "transparency", "stored", "frames", "too large", "jpeg wanted"],
)
def test_other_png_is_encoded_again(tmp_path, picture, write, options):
    write(picture, tmp_path / "a.png")
    (page,) = rendered(str(tmp_path / "a.png"), **options)
    assert page.image.data != (tmp_path / "a.png").read_bytes()
    assert (page.image.width, page.image.height, corner(page)) == (200, 100, "red")


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("side", [600, 1400, 2100, 2800])
def test_unchanged_image_has_the_ink_of_its_page(tmp_path, suffix, side):
    image = Image.new("RGB", (side, side // 2), "#ffd")
    for y in range(40, side // 2 - 40, 40):
        ImageDraw.Draw(image).rectangle((40, y, side - 40, y + 12), fill="navy")
    image.save(tmp_path / f"a.{suffix}")
    (page,) = rendered(str(tmp_path / f"a.{suffix}"), image_size=side)
    whole = ink_of(image)
    assert (page.evidence.ink.width, page.evidence.ink.height) == (whole.width, whole.height)
    assert (pixels_of(page.evidence.ink) ^ pixels_of(whole)).mean() < 0.01


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_unchanged_image_with_equally_bright_ink_is_no_blank(tmp_path, suffix):
    image = Image.new("RGB", (1400, 700), "#009800")
    ImageDraw.Draw(image).text((80, 200), "The quay is closed", font=ImageFont.load_default(60), fill="#ff1700")
    image.save(tmp_path / f"a.{suffix}")
    (page,) = rendered(str(tmp_path / f"a.{suffix}"), image_size=1400)
    assert not page.evidence.ink.blank


def test_page_of_an_unchanged_image_can_be_rendered_twice(tmp_path, picture):
    for name in ("a.png", "a.jpg"):
        picture.resize((1400, 700)).save(tmp_path / name)
        first, second = rendered(str(tmp_path / name), 1, 1)
        assert first.image == second.image
        assert first.evidence == second.evidence


def test_every_frame_of_a_tiff_is_a_page(tmp_path, picture):
    frames = [picture, picture.rotate(180), picture.convert("L")]
    frames[0].save(tmp_path / "a.tiff", save_all=True, append_images=frames[1:])
    assert opened(str(tmp_path / "a.tiff")) == 3
    first, second, third, beyond = rendered(str(tmp_path / "a.tiff"), 1, 2, 3, 4)
    assert (corner(first), corner(second)) == ("red", "blue")
    assert third.image.width == 200
    assert beyond is Reason.NO_SUCH_PAGE


def test_a_fax_of_half_the_lines_has_its_full_height(tmp_path):
    fax = Image.new("1", (800, 500), 1)
    fax.save(tmp_path / "a.tif", compression="group4", dpi=(204, 98))
    fax.save(tmp_path / "b.tif", compression="group4", dpi=(204, 196))
    (half,) = rendered(str(tmp_path / "a.tif"), 1)
    (fine,) = rendered(str(tmp_path / "b.tif"), 1)
    assert (half.image.width, half.image.height) == (800, round(500 * 204 / 98))
    assert (fine.image.width, fine.image.height) == (800, 500)


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png"])
def test_an_animation_is_not_the_whole_document(tmp_path, picture, name):
    picture.save(tmp_path / name, save_all=True, append_images=[picture.rotate(180)], duration=500)
    assert opened(str(tmp_path / name)) == 1
    (animated,) = rendered(str(tmp_path / name), 1)
    assert "only its first frame" in animated.stands_for
    picture.save(tmp_path / name)
    (still,) = rendered(str(tmp_path / name), 1)
    assert still.stands_for == ""


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("a.tiff", "CMYK"),
        ("a.png", "RGBA"),
        ("a.png", "LA"),
        ("a.png", "P"),
        ("a.png", "1"),
        ("a.webp", "RGB"),
        ("a.webp", "RGBA"),
    ],
)
def test_colour_modes_become_rgb_or_grey_on_white(tmp_path, name, mode):
    blank = {"CMYK": (0, 0, 0, 0), "RGBA": (0, 0, 0, 0), "LA": (0, 0), "RGB": (255, 255, 255)}.get(mode, 255)
    image = Image.new("RGB", (64, 64), "white").convert("P") if mode == "P" else Image.new(mode, (64, 64), blank)
    image.save(tmp_path / name)
    (page,) = rendered(str(tmp_path / name))
    assert np.asarray(pixels(page)).mean() == pytest.approx(255, abs=3)
    assert Image.open(io.BytesIO(page.image.data)).mode in ("RGB", "L")


def test_sixteen_bits_a_channel_keep_their_greys(tmp_path):
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "a.tiff")
    (page,) = rendered(str(tmp_path / "a.tiff"))
    assert np.asarray(pixels(page))[..., 0] == pytest.approx(ramp / 257, abs=1)


@pytest.mark.parametrize("values", [np.uint16, np.float32])
def test_deep_grays_with_zero_as_white_are_no_negative(tmp_path, values):
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(values)
    Image.fromarray(ramp).save(tmp_path / "a.tiff", tiffinfo={262: 0})
    (page,) = rendered(str(tmp_path / "a.tiff"))
    assert np.asarray(pixels(page))[..., 0] == pytest.approx(255 - ramp / 257, abs=1)


def test_image_with_too_many_pixels_is_refused_before_decoding(tmp_path):
    path = tmp_path / "a.png"
    Image.new("1", (14_200, 14_200)).save(path)
    assert opened(str(path)) is Reason.RENDER_LIMIT


def test_a_sliver_is_refused(tmp_path):
    Image.new("L", (5000, 3)).save(tmp_path / "a.png")
    assert rendered(str(tmp_path / "a.png")) == [Reason.RENDER_LIMIT]


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tiff", "a.webp"])
def test_cut_images_are_unreadable_or_damaged(tmp_path, picture, name):
    noise = Image.effect_noise((300, 300), 90).convert("RGB")
    noise.save(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    (page,) = rendered(written(tmp_path / f"cut-{name}", data[: len(data) // 2]))
    assert page is Reason.UNREADABLE or page.damage
    assert rendered(written(tmp_path / f"empty-{name}", b"")) == [Reason.UNREADABLE]


@pytest.mark.parametrize(
    ("letters", "paper"),
    [(["black"], 255), (["white"], 0), (["#eee"], 0), (["white", "black"], 128), (["red", "blue"], 255), ([], 255)],
)
@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_letters_on_a_transparent_ground_are_seen(tmp_path, letters, paper, suffix):
    image = Image.new("RGBA", (400, 200), (0, 0, 0, 0))
    for number, letter in enumerate(letters):
        for x in range(20, 380, 12):
            ImageDraw.Draw(image).rectangle((x, 20 + 90 * number, x + 4, 80 + 90 * number), fill=letter)
    image.save(tmp_path / f"a.{suffix}", lossless=True)
    (page,) = rendered(str(tmp_path / f"a.{suffix}"))
    assert pixels(page).getpixel((2, 2)) == (paper, paper, paper)


def test_a_page_with_transparent_corners_stays_on_white(tmp_path):
    image = Image.new("RGBA", (400, 200), "white")
    draw = ImageDraw.Draw(image)
    for x in range(20, 380, 12):
        draw.rectangle((x, 40, x + 4, 160), fill="black")
    image.paste((0, 0, 0, 0), (0, 0, 10, 10))
    image.save(tmp_path / "a.png")
    (page,) = rendered(str(tmp_path / "a.png"))
    assert pixels(page).getpixel((2, 2)) == (255, 255, 255)


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
def test_gray_in_sixteen_bits_is_scaled_by_its_depth(tmp_path, bits):
    most = (1 << bits) - 1
    values = np.full((60, 80), most, np.uint16)
    values[20:40, 20:60] = most // 10
    Image.fromarray(values).save(tmp_path / "a.png")
    (page,) = rendered(str(tmp_path / "a.png"))
    shown = pixels(page).convert("L")
    assert shown.getpixel((5, 5)) == 255
    assert shown.getpixel((40, 30)) == pytest.approx(25, abs=2)


@pytest.mark.parametrize("noise", [0, 400])
def test_text_in_a_narrow_range_of_gray_is_stretched(tmp_path, noise):
    values = 30_000 + np.random.default_rng(1).integers(0, noise + 1, (600, 800)).astype(np.uint16)
    values[200:220, 200:600:20] -= 400 * (noise == 0)
    Image.fromarray(values).save(tmp_path / "a.png")
    (page,) = rendered(str(tmp_path / "a.png"))
    low, high = pixels(page).convert("L").getextrema()
    assert (high - low > 200) == (noise == 0)  # the noise of paper is no ink


@pytest.mark.parametrize("name", ["a.gif", "a.bmp", "a.jp2", "a.j2k", "a.avif"])
def test_image_formats_are_known_by_content_and_read(tmp_path, picture, name):
    if name == "a.avif" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    picture.save(tmp_path / name)
    assert kind_by_content(tmp_path / name) == kind_by_name(name) == "image"
    (page,) = rendered(str(tmp_path / name))
    assert (page.image.width, page.image.height, corner(page)) == (200, 100, "red")


def test_text_that_begins_like_a_bmp_is_no_image(tmp_path):
    (tmp_path / "a").write_text("BMW, Munich: minutes of the annual meeting of the members, in May.")
    assert kind_by_content(tmp_path / "a") == ""


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_image_without_its_last_bytes_is_read_and_damaged(tmp_path, picture, name):
    picture.resize((800, 600)).save(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    for kept, whole in ((len(data), True), (len(data) - 2 if name == "a.jpg" else len(data) - 30, False)):
        (tmp_path / name).write_bytes(data[:kept])
        (page,) = rendered(str(tmp_path / name))
        assert (corner(page), page.damage == "") == ("red", whole)
        assert (page.image.data == data[:kept]) is whole  # other readers refuse the damaged file


def test_large_jpeg_without_its_end_has_all_its_rows(tmp_path):
    Image.effect_noise((400, 400), 90).save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:-2])
    (page,) = rendered(str(tmp_path / "a.jpg"))
    with Image.open(io.BytesIO(page.image.data)) as shown:
        assert len(set(shown.convert("L").crop((0, 392, 400, 400)).tobytes())) > 50


def test_image_without_its_pixels_is_unreadable(tmp_path, picture):
    picture.resize((800, 600)).save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:300])
    assert rendered(str(tmp_path / "a.jpg")) == [Reason.UNREADABLE]


def levels(picture, *, marked):
    """Smaller copies of a picture, each half as large."""
    tags = []
    for level in (1, 2, 3):
        about = TiffImagePlugin.ImageFileDirectory_v2()
        if marked:
            about[254] = 1
        small = picture.resize((200 >> level, 104 >> level))
        small.encoderinfo = {"tiffinfo": about}
        tags.append(small)
    return tags


@pytest.mark.parametrize("marked", [True, False])
def test_smaller_copies_in_a_tiff_are_no_pages(tmp_path, picture, marked):
    first = picture.resize((200, 104))
    first.save(tmp_path / "a.tif", save_all=True, append_images=levels(first, marked=marked))
    assert opened(str(tmp_path / "a.tif")) == 1


def test_pages_of_a_tiff_in_several_sizes_stay_pages(tmp_path, picture):
    others = [picture.resize((100, 50)), picture.resize((150, 75))]
    picture.save(tmp_path / "a.tif", save_all=True, append_images=others)
    assert opened(str(tmp_path / "a.tif")) == 3
