"""Results of the filters for real and generated documents, opened in the renderer's processes."""

import asyncio
import importlib.util
import io
import sys
from pathlib import Path

import pytest
from pdf_writing import PAPER, pages, text, written
from PIL import Image, ImageDraw

from llm_ocr.documents.filters import FilterOptions, Filters, Languages
from llm_ocr.documents.filters.judging import spam
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.errors import MissingExtra, PageFailure, UsageError, WorkerDied
from llm_ocr.types import Reason

ALL = FilterOptions(("en",), forms=True, spam=True, blank=True)
GERMAN = (
    "In der Nacht war der Fluss gestiegen, und gegen Mittag stand er wieder so tief wie am Tag zuvor. Niemand hatte "
    "die Boote an das Ufer gezogen, und drei von ihnen waren verschwunden. Der Schreiber der Gemeinde zeichnete den "
    "Wasserstand mit einem Stück Kreide an die Mauer neben der Tür. Seit Menschengedenken hatte im Dorf keiner eine "
    "Marke gesehen, die so weit oben stand."
)


def lines_of(words: str) -> bytes:
    """A page with the words, sixty characters a line."""
    rows = [words[start : start + 60] for start in range(0, len(words), 60)]
    return b"".join(text(row, y=740 - 16 * number, size=10) for number, row in enumerate(rows))


def looked(paths, options: FilterOptions = ALL) -> tuple[dict[str, str], str]:
    """By file name the reason and detail, "" for a document that stays, `failed` for one that cannot be opened."""

    async def look() -> tuple[dict[str, str], str]:
        found = {}
        async with Renderer(RenderOptions(workers=2)) as renderer, Filters(renderer, options) as filters:
            for path in map(Path, paths):
                try:
                    _, left_out = await filters.look(str(path), "", path.name)
                except PageFailure as failure:
                    found[path.name] = f"failed: {failure.reason}"
                else:
                    found[path.name] = f"{left_out.reason}: {left_out.detail}" if left_out else ""
            return found, filters.said()

    return asyncio.run(look())


def test_the_examples_stay(examples):
    found, trouble = looked([examples / name for name in ("paper.pdf", "scan.pdf", "invoice.png", "fax.tiff")])
    assert set(found.values()) == {""} and trouble == ""


def test_other_languages_are_dropped_unless_filter_keeps_them(tmp_path):
    path = written(tmp_path / "fluss.pdf", pages(lines_of(GERMAN)))
    short = written(tmp_path / "short.pdf", pages(lines_of(GERMAN[:120])))
    found, _ = looked([path, short])
    assert found["fluss.pdf"].startswith("language: de, ") and found["short.pdf"] == ""
    assert looked([path], FilterOptions(("de", "fr")))[0] == {"fluss.pdf": ""}


def form(*, field: bytes = b"/FT/Tx/T(name)", acroform: bytes = b"/Fields[4 0 R]") -> bytes:
    """A page with one field on it."""
    return pages(
        b"",
        attributes=PAPER + b"/Annots[4 0 R]",
        extra=(b"<</Type/Annot/Subtype/Widget/Rect[100 700 300 720]/P 5 0 R%s>>" % field,),
        catalog=b"/AcroForm<<%s/DA(/F 10 Tf)/DR<</Font<</F 3 0 R>>>>>>" % acroform,
    )


def test_forms_are_those_with_fields_to_be_filled_in(tmp_path):
    forms = {
        "text.pdf": form(),
        "choice.pdf": form(field=b"/FT/Ch/Ff 131072/Opt[(a)(b)]/T(one)"),
        "read only.pdf": form(field=b"/FT/Tx/Ff 1/T(name)/V(Ann)"),
        "signed.pdf": form(field=b"/FT/Sig/T(signature)"),
        "button.pdf": form(field=b"/FT/Btn/Ff 65536/T(next)"),
        "xfa.pdf": form(acroform=b"/Fields[]/XFA(x)", field=b"/FT/Sig/T(s)"),
        "plain.pdf": pages(lines_of("A letter without anything to be filled in.")),
    }
    found, trouble = looked([written(tmp_path / name, data) for name, data in forms.items()], FilterOptions(forms=True))
    assert {name for name, said in found.items() if said} == {"text.pdf", "choice.pdf", "xfa.pdf"}, found
    assert found["text.pdf"] == "forms: AcroForm, text field on page 1" and trouble == ""


def test_blank_documents_have_neither_text_nor_ink(tmp_path):
    sheet = Image.new("RGB", (1700, 2200), (238, 232, 210))
    dotted = sheet.copy()
    ImageDraw.Draw(dotted).ellipse((800, 900, 812, 912), fill=(20, 20, 20))
    frames = io.BytesIO()
    sheet.save(frames, "TIFF", save_all=True, append_images=[dotted])
    made = {
        "empty.pdf": pages(b"", b""),
        "number.pdf": pages(b"", text("2")),
        "line.pdf": pages(b"0.5 w 72 400 m 540 400 l S", b""),
        "sheet.png": _png(sheet),
        "dotted.png": _png(dotted),
        "second frame.tiff": frames.getvalue(),
    }
    found, _ = looked([written(tmp_path / name, data) for name, data in made.items()], FilterOptions(blank=True))
    assert {name for name, said in found.items() if said} == {"empty.pdf", "sheet.png"}, found


def _png(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def test_spam_has_several_of_the_words_and_enough_of_them(tmp_path):
    seo = "Download the free ebook now as pdf or epub, save the file. " * 10
    assert spam(seo)
    free = "The council met on Monday and left the market square free for the fair. " * 20
    assert not spam(free)  # one word, though often
    long = "The committee heard the report of the treasurer and asked for the accounts of last year. " * 200
    assert not spam(long + "Save the file as pdf.")  # three of them, lost among the others
    paths = [written(tmp_path / name, pages(lines_of(words))) for name, words in (("s.pdf", seo), ("t.pdf", seo[:150]))]
    found, _ = looked(paths, FilterOptions(spam=True))
    assert found["s.pdf"].startswith("spam: ") and found["t.pdf"] == ""  # too short to judge


def test_a_document_that_cannot_be_opened_is_not_left_out(tmp_path, examples):
    locked = (examples / "paper.pdf").read_bytes()[:200]
    found, trouble = looked([written(tmp_path / "cut.pdf", locked), tmp_path / "missing.pdf"])
    assert found == {"cut.pdf": f"failed: {Reason.UNREADABLE}", "missing.pdf": f"failed: {Reason.NOT_FOUND}"}
    assert trouble == ""


def test_a_document_that_stops_a_filter_stays_and_is_named(tmp_path, monkeypatch):
    judge = Renderer.judge

    async def judged(renderer, source, kind, filters):
        if "bomb" in source:
            raise PageFailure(Reason.RENDER_TIMEOUT, "the document was not looked at in 60 s")
        return await judge(renderer, source, kind, filters)

    monkeypatch.setattr(Renderer, "judge", judged)
    paths = [written(tmp_path / name, pages(b"")) for name in ("bomb.pdf", "empty.pdf")]
    found, trouble = looked(paths, FilterOptions(blank=True))
    assert found["bomb.pdf"] == "" and found["empty.pdf"].startswith("blank")
    assert trouble.startswith("1 document kept because a filter failed: bomb.pdf (render timeout")


def test_languages_that_die_keep_the_documents(tmp_path, monkeypatch):
    async def dies(self, words):
        raise WorkerDied("ended with code 9")

    monkeypatch.setattr(Languages, "judge", dies)
    paths = [written(tmp_path / f"{number}.pdf", pages(lines_of(GERMAN))) for number in range(5)]
    found, trouble = looked(paths, FilterOptions(("en",)))
    assert set(found.values()) == {""}
    assert trouble.startswith("5 documents kept") and trouble.count(".pdf") == 3 and trouble.endswith(", ...")


def test_codes_are_those_that_are_known():
    async def check(*codes: str) -> None:
        async with Languages(codes) as languages:
            await languages.check()

    asyncio.run(check("en", "de"))
    with pytest.raises(UsageError, match=r"`filter_language=deu`: .*\n.*Did you mean .*de") as refused:
        asyncio.run(check("en", "deu"))
    assert "zh" in refused.value.hint and "zxx" not in refused.value.hint


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("llm_ocr.documents.filters.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'pip install "py3langid>='):
        asyncio.run(Languages(["en"]).check())
    assert importlib.util.find_spec("py3langid") is not None and "py3langid" not in sys.modules


@pytest.mark.slow
def test_of_real_documents_only_the_right_ones_are_left_out(shared_pdfs):
    """Two are lorem ipsum, which is Latin."""
    found, trouble = looked(sorted(shared_pdfs.glob("*.pdf")))
    said = {name: words.partition(",")[0] for name, words in found.items() if words}
    assert said == {
        "blanktext.pdf": "blank: no text and no ink on any page",
        "code_and_formula.pdf": "language: la",
        "encrypted_password_1234.pdf": f"failed: {Reason.ENCRYPTED}",
        "form_on_later_pages.pdf": "forms: AcroForm",
        "normal_4pages.pdf": "language: ko",
        "picture_classification.pdf": "language: la",
        "right_to_left_01.pdf": "language: ar",
    }
    assert trouble == ""
