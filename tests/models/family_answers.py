"""One page as each family of models would answer it: title, sentence, table, and a figure where it gives places."""

from llm_ocr.models.profile import Profile

TITLE, SENTENCE, CELL = "Harbour Log", "The tide rose by two metres.", "Gauge"
_TABLE = "<table><tr><th>Gauge</th><th>Level</th></tr><tr><td>North</td><td>2.1</td></tr></table>"
_MARKDOWN = f"# {TITLE}\n\n{SENTENCE}\n\n{_TABLE}"
_GROUNDING = (
    f"<|ref|>title<|/ref|><|det|>[[80, 60, 900, 100]]<|/det|>\n# {TITLE}\n\n"
    f"<|ref|>text<|/ref|><|det|>[[80, 120, 900, 200]]<|/det|>\n{SENTENCE}\n\n"
    "<|ref|>image<|/ref|><|det|>[[80, 220, 900, 600]]<|/det|>\n\n"
    f"<|ref|>table<|/ref|><|det|>[[80, 620, 900, 800]]<|/det|>\n{_TABLE}<｜end▁of▁sentence｜>"
)
_LIGHTON_3 = (
    f"![title](80,60,900,100) {TITLE}\n![text](80,120,900,200) {SENTENCE}\n"
    f"![image](80,220,900,600) A drawing of a quay\n![table](80,620,900,800) {_TABLE}\n"
    "![page_number](480,960,510,980) 7"
)
_LIGHTON_2 = f"# {TITLE}\n\n{SENTENCE}\n\n![image](image_0.png)80,220,900,600\n\n{_TABLE}"
_OVIS = f'# {TITLE}\n\n{SENTENCE}\n\n<img src="images/bbox_80_220_900_600.jpg" />\n\n{_TABLE}'
_INFINITY = (
    '```json\n[{"bbox":[80,60,900,100],"category":"title","text":"# Harbour Log"},'
    '{"bbox":[80,120,900,200],"category":"text","text":"The tide rose by two metres."},'
    '{"bbox":[80,220,900,600],"category":"figure","text":""},'
    f'{{"bbox":[80,620,900,800],"category":"table","text":"{_TABLE}"}}]\n```'
)
_DOTS = (
    '[{"bbox":[20,20,220,40],"category":"Title","text":"# Harbour Log"},'
    '{"bbox":[20,50,220,70],"category":"Text","text":"The tide rose by two metres."},'
    '{"bbox":[20,80,220,180],"category":"Picture"},'
    f'{{"bbox":[20,190,220,220],"category":"Table","text":"{_TABLE}"}}]'
)
_HTML = (
    '<div data-bbox="80 60 900 100" data-label="Section-Header"><h1>Harbour Log</h1></div>'
    f'<div data-bbox="80 120 900 200" data-label="Text"><p>{SENTENCE}</p></div>'
    '<div data-bbox="80 220 900 600" data-label="Figure"><img alt="A drawing of a quay"/></div>'
    f'<div data-bbox="80 620 900 800" data-label="Table">{_TABLE}</div>'
)
_OLMOCR = (
    "---\nprimary_language: en\nis_rotation_valid: True\nrotation_correction: 0\nis_table: False\nis_diagram: False\n"
    f"---\n{_MARKDOWN}"
)
_UNLIMITED = (
    f"<|det|>title [80, 60, 900, 100]<|/det|># {TITLE}\n<|det|>text [80, 120, 900, 200]<|/det|>{SENTENCE}\n"
    f"<|det|>image [80, 220, 900, 600]<|/det|>\n<|det|>table [80, 620, 900, 800]<|/det|>{_TABLE}"
)
_NEMOTRON = (
    f"<x_0.1><y_0.1># {TITLE}<x_0.9><y_0.2><class_Title>"
    f"<x_0.1><y_0.2>{SENTENCE}<x_0.9><y_0.3><class_Text>"
    "<x_0.1><y_0.3><x_0.9><y_0.6><class_Picture>"
    "<x_0.1><y_0.6>\\begin{tabular}{cc} Gauge & Level \\\\ North & 2.1 \\end{tabular}<x_0.9><y_0.8><class_Table>"
)
_DOCTAGS = (
    f"<doctag><section_header_level_1><loc_40><loc_30><loc_450><loc_50>{TITLE}</section_header_level_1>"
    f"<text><loc_40><loc_60><loc_450><loc_100>{SENTENCE}</text>"
    "<picture><loc_40><loc_110><loc_450><loc_300></picture>"
    "<otsl><loc_40><loc_310><loc_450><loc_400><ched>Gauge<ched>Level<nl><fcel>North<fcel>2.1<nl></otsl>"
)
#: By the beginning of a profile's name; all others answer in Markdown.
_ANSWERS = {
    "deepseek": _GROUNDING,
    "lightonocr-3": _LIGHTON_3,
    "lightonocr-2-1b-bbox": _LIGHTON_2,
    "ovisocr2": _OVIS,
    "infinity": _INFINITY,
    "dots": _DOTS,
    "chandra": _HTML,
    "surya": _HTML,
    "olmocr": _OLMOCR,
    "unlimited": _UNLIMITED,
    "nemotron": _NEMOTRON,
    "granite": _DOCTAGS,
    "smoldocling": _DOCTAGS,
}


def answer_of(profile: Profile) -> str:
    """The page in the format of the profile's own mode."""
    return next((text for name, text in _ANSWERS.items() if profile.name.startswith(name)), _MARKDOWN)


def has_figure(profile: Profile) -> bool:
    """Whether that answer says where a figure is."""
    return any(profile.name.startswith(name) for name in _ANSWERS if name != "olmocr")


def prompt_as_read(profile: Profile) -> str:
    """All the words of the page's request, as a server without the chat template joins them."""
    prompt = profile.prompts[profile.mode]
    parts = [part for part in (profile.system, prompt or None) if part is not None]
    return "\n".join(parts)
