"""Talk of chat models: refusals, statements that an image has no text, and sentences and fences around an answer."""

import re

_LONGEST_REFUSAL = 600
_SEEN_IN = r"(?:image|picture|photo|scan|screenshot|file|attachment|figure|document)s?"
_REFUSAL = re.compile(
    rf"""\W{{0,4}}
    (?:(?:(?:i(?:['’]m|\ am)?\ (?:very\ |so\ )?sorry|sorry|apologies|i\ apologi[sz]e|unfortunately)\b
        [^.!?\n]{{0,60}}?[,.;:!]?\ (?:but\ )?)?
        (?:as\ an?\ (?:ai|language|text)\b[^,.\n]{{0,60}},?\ )?
        i(?:['’]m|\ am)?\ (?:currently\ )?
        (?:unable\ to|not\ able\ to|cannot|can['’]t|can\ not|won['’]t\ be\ able\ to
            |do(?:n['’]t|\ not)\ have\ the\ ability\ to)
        \ (?:directly\ )?
        (?:(?:assist|help)(?:\ you)?\ with\ (?:that|this|identifying)\b
        |(?:reproduce|transcribe|share)\ [^\n]{{0,100}}\bcopyright
        |(?:fulfill|fulfil|complete|comply\ with|process|answer)\ (?:this|that)\ request\b
        |(?:provide|give|offer|generate|create|produce)\ (?:you\ )?(?:with\ )?(?:an?\ |the\ |any\ )?(?:\w+\ ){{0,2}}?
            (?:description|transcription|caption|details|information|analysis)\b[^\n]{{0,80}}?\b{_SEEN_IN}\b
        |(?:view|see|access|process|read|analy[sz]e|interpret|extract|transcribe|describe|identify|open|display)\b
        [^\n]{{0,80}}?\b{_SEEN_IN}\b)
    |(?:i(?:['’]m|\ am)\ sorry|sorry|apologies|unfortunately),?\ (?:but\ )?the\ (?:text\ in\ the\ )?
        (?:image|picture|photo|scan)(?:\ you\ provided)?\ (?:is|appears|seems)\b[^.\n]{{0,40}}?
        \b(?:blurry|blurred|unclear|illegible|unreadable|low|dark|small|legible|readable|clear)\b
    |it\ (?:looks\ like|seems|appears)\ (?:that\ )?you\ (?:have\ not|haven['’]t|did\ not|didn['’]t|forgot\ to)\ 
        (?:upload|attach|provide|include|share)[^.\n]{{0,40}}\b(?:images?|pictures?|photos?|files?|documents?)\b
    |(?:i\ (?:do\ not|don['’]t|can(?:not|['’]t))\ (?:see|have|find)\ (?:an?y?\ |the\ )?(?:image|picture|photo|file)s?
        |(?:there\ (?:is|was)\ )?no\ (?:image|picture|photo|file)(?:\ (?:is|was|has\ been))?)
        \ (?:attached|provided|uploaded|included|shared|in\ (?:this|your)\ (?:message|chat|request))\b
    |please\ (?:upload|attach|provide|share)\ [^.\n]{{0,40}}\b(?:image|picture|photo|file|document)\b
        [^.\n]{{0,40}}?\ (?:so\ (?:that\ )?i\ can|and\ i(?:['’]ll|\ will))\b
    |(?:(?:es\ tut\ mir\ leid|entschuldigung|leider),?\ (?:aber\ )?)?(?:ich\ kann|kann\ ich)\ [^.\n]{{0,60}}?
        \b(?:bild(?:es|er)?|foto|datei|abbildung|scan)\b[^.\n]{{0,40}}?\bnicht\ (?:\w+\ )?
        (?:beschreiben|lesen|erkennen|sehen|verarbeiten|analysieren|transkribieren|öffnen|anzeigen)
    |(?:(?:je\ suis\ )?désolée?,?\ (?:mais\ )?)?je\ ne\ (?:(?:peux|parviens|puis)\ pas
            |suis\ pas\ (?:en\ mesure|capable))
        \ (?:à\ |de\ |d['’])?(?:décrire|lire|voir|analyser|traiter|transcrire|extraire|accéder|identifier|ouvrir)\b
        [^.\n]{{0,60}}?\b(?:image|photo|fichier|figure)s?\b
    |(?:(?:lo\ siento|lamento|disculpe|desculpe|sinto\ muito|mi\ dispiace)\w{{0,6}}[,.]?\ (?:pero\ |mas\ |ma\ )?)?
        (?:no\ (?:puedo|soy\ capaz\ de)|não\ (?:posso|consigo)|non\ (?:posso|riesco\ a))
        \ (?:descr|leer|ler\b|legg|ver\b|vede|analiz|analis|proce|transcr|extra|estra|acced|acess|identific)\w{{0,10}}
        [^.\n]{{0,60}}?\b(?:imagen|imagem|imágenes|imagens|immagin[ei]|fotos?|archivo|arquivo|file)\b
    |(?:很|非常|十分)?(?:抱歉|对不起|不好意思|抱歉地)[，,。！! ]{{0,2}}(?:但|但是)?我?(?:目前|现在|暂时)?
        (?:无法|不能|未能|没有办法)(?:直接|为您|为你)?(?:识别|读取|阅读|查看|看到|处理|访问|分析|解析|提取|转录|打开|描述|提供|回答)
        [^\n]{{0,16}}?(?:图|照片|文字|文件|附件|文档)
    |申し訳(?:あり|ござい)ません[がけ]?(?:れど)?[、,。 ]?
        [^\n。]{{0,30}}(?:画像|写真|ファイル|図)[^\n。]{{0,30}}(?:できません|できない|不可能)
    |(?:죄송합니다|죄송하지만)[.,]?\ ?[^\n.]{{0,30}}(?:이미지|사진|그림|파일)
        [^\n.]{{0,30}}(?:수\ 없습니다|못합니다|어렵습니다)
    |(?:(?:извините|простите|к\ сожалению),?\ (?:но\ )?)?я\ не\ могу\ [^.\n]{{0,40}}
        (?:изображени|картинк|фото|файл))""",
    re.IGNORECASE | re.VERBOSE,
)
#: Whole answer that says of an image that it has no text. Pages print "This page is intentionally left blank".
_SAYS_NOTHING = re.compile(
    r"""[\W_]{0,4}(?:
        (?:there\ (?:is|are)|i\ (?:can\ )?(?:see|find|detect))?\ ?
        no\ (?:\w+\ ){0,2}(?:text|textual\ content|content|words)
            (?:\ (?:is|was|were))?(?:\ (?:detected|found|visible|present|available|shown))?
            (?:\ (?:in|on)\ (?:the|this)\ (?:\w+\ )?(?:image|picture|page|document|scan))?
        |(?:the|this)\ (?:provided\ )?(?:image|picture|scan|page|document)(?:\ provided)?\ (?:
            (?:contains|has|shows)\ no|(?:does\ not|doesn['’]t)\ (?:contain|have|show)\ any)
            \ (?:\w+\ ){0,2}(?:text|content|words)
        |(?:the|this)\ (?:provided\ )?(?:image|picture|scan)(?:\ provided)?\ (?:is|appears\ to\ be|seems\ to\ be)\ 
            (?:\w+\ )?(?:blank|empty)(?:[,;]?\ (?:and|with)\ (?:contains\ |has\ )?no\ (?:\w+\ )?(?:text|content))?
        |the\ page\ (?:is|appears\ to\ be|seems\ to\ be)\ (?:(?:completely|entirely|otherwise)\ )?(?:blank|empty)
        |null
        |\[(?:no\ text|blank\ page|empty\ page|blank)\]
        |(?:图片|图像|页面)(?:中|里)?(?:没有|无)(?:任何|可识别的)?(?:文字|文本|内容)
    )[\W_]{0,4}""",
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST_NOTHING = 200


#: Paragraph that says that text of the page is left out.
_OMITS = re.compile(
    r"""[*_\s]{0,4}(?:[\[(（]|<!--)[\s.…*_]{0,8}(?:note:\ )?
        (?:(?:the\ )?(?:(?:rest|remainder|remaining\ (?:part|portion)s?)
            (?:\ of\ (?:the|this)\ (?:page|document|text|table|image|list|content))?
            |remaining\ (?:text|contents?|rows|pages?|sections?|lines|items|entries|paragraphs)
            |(?:further|additional)\ (?:text|rows|content))
        \ (?:of\ the\ \w+\ )?(?:is|are|was|were|has\ been|have\ been|continues?|follows?)\b[^\[\]()\n]{0,120}
        |(?:the\ )?(?:text|content|page|image|document)(?:\ (?:in|of|on)\ (?:the|this)\ \w+)?\ (?:is|are)
            \ (?:mostly\ |completely\ |entirely\ |too\ )?(?:illegible|unreadable|blurry|truncated|cut\ off)
            [^\[\]()\n]{0,60}
        |(?:text|content|rows|remaining\ \w+|rest(?:\ of\ (?:the|this)\ \w+)?)\ (?:is\ )?
            (?:omitted|truncated|continues)\b[^\[\]()\n]{0,60}
        |insert\ (?:\w+\ ){1,2}here
        |(?:der\ rest\ d|le\ reste\ d|el\ resto\ d|o\ resto\ d|il\ resto\ d)[^\[\]()\n]{0,40}?
            \b(?:unleserlich|weggelassen|ausgelassen|abgeschnitten|illisible|omis|tronqué|ilegible|ilegível|omitid|illeggibile|omess)
            [^\[\]()\n]{0,40}
        |(?:其余|剩余|以下|后续|剩下的?)(?:的)?(?:内容|文字|部分|文本)?(?:已|被|从)?(?:省略|略去|略))
    [\s.…*_]{0,8}(?:[\])）]|-->)[*_\s.]{0,4}""",
    re.IGNORECASE | re.VERBOSE,
)
#: Answer of one paragraph that describes the image instead.
_DESCRIBES = re.compile(
    r"(?:this|the) (?:(?:provided |given )?(?:image|picture|photo(?:graph)?|screenshot)(?: you \w+)?"
    r" (?:shows|depicts|displays|contains|features|presents|appears to|seems to|is a\b)"
    r"|(?:document|page|scan) (?:appears|seems) to (?:be|contain|show|list)\b)"
    r"|(?:l['’]image|cette image) (?:montre|présente|contient|affiche)\b"
    r"|(?:la|esta) imagen (?:muestra|presenta|contiene)\b|(?:a|esta) imagem (?:mostra|apresenta|contém)\b"
    r"|(?:l['’]|questa )immagine (?:mostra|presenta|contiene)\b|(?:das|dieses) bild (?:zeigt|enthält)\b"
    r"|[这该此](?:张|幅)?(?:图片|图像|照片)(?:展示|显示|是|包含|中)",
    re.IGNORECASE,
)
_LONGEST_DESCRIPTION = 1500


def omits_text(text: str) -> bool:
    """Return whether a paragraph only says that text of the page is left out."""
    return len(text) <= _LONGEST_NOTHING and _OMITS.fullmatch(text) is not None


def describes_image(text: str) -> bool:
    """Return whether an answer is one paragraph that describes the image instead of its text."""
    body = text.strip()
    return len(body) <= _LONGEST_DESCRIPTION and "\n" not in body and _DESCRIBES.match(body) is not None


def is_refusal(text: str) -> bool:
    """Return whether a text says that the model does not read the image, instead of content of the page."""
    return len(text) <= _LONGEST_REFUSAL and _REFUSAL.match(text) is not None


def says_nothing(text: str) -> bool:
    """Return whether a whole answer only says that the image has no text."""
    return len(text) <= _LONGEST_NOTHING and _SAYS_NOTHING.fullmatch(text.strip()) is not None


_TOKENS = re.compile(r"(?:\s{0,9}<[^<>\s]{1,40}>){0,9}\s{0,9}")
_SHORTEST_PROMPT = 8  # characters: "OCR:" may be text of a page


def without_echo(text: str, prompt: str) -> str:
    """Return an answer without the prompt at its beginning, with or without tokens such as `<image>`.

    The answer may repeat the first paragraphs of the prompt alone.
    """
    paragraphs = prompt.strip().split("\n\n")
    for count in range(len(paragraphs), 0, -1):
        part = "\n\n".join(paragraphs[:count])
        for before, words in ((False, part), (True, part[_end(_TOKENS, part) :].strip())):
            start = _end(_TOKENS, text) if before else len(text) - len(text.lstrip())
            if len(words) >= _SHORTEST_PROMPT and text.startswith(words, start):
                return text[start + len(words) :]
    return text


def _end(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return found.end() if found else 0


_WRAPPERS = ("```markdown", "```md", "```html")
#: Fences that hold the answer if the model announces it, or if their whole content is Markdown.
_OTHER_WRAPPERS = ("```", "```text", "```plaintext", "```txt")
_MARKDOWN = re.compile(
    r"^(?:\|?(?:[ \t]{0,8}:?-{3,40}:?[ \t]{0,8}\|){1,99}|<table\b|#{1,6}[ \t]+[^\s#][^\n]*\n\n|\*\*\w)", re.MULTILINE
)
_PROGRAM = re.compile(r"[{};]$|\w\(|=|^(?: {2,}|\t)[^-*+\d\s]", re.MULTILINE)
_TALK = re.compile(
    r"(?:sure|certainly|of course|okay|here(?:['’]s| is| are)|below is|the following is|i(?:['’]ve| have))\b"
    r"[^\n]{0,200}\b(?:text|contents?|transcri\w{2,8}|markdown|image|document|page|ocr|html)\b[^\n]{0,200}[:.]\Z",
    re.IGNORECASE,
)
_LONGEST_TALK = 400  # characters on either side
_LEAST_WRAPPED = 4  # lengths of the talk around an answer that is not announced
_SEEN = r"(?:image|picture|photo|scan|screenshot|page|document|pdf|file)s?"
_PAGE = rf"\ (?:of|from|in|on|for)\ (?:the|this|your)\ (?:\w+\ )?{_SEEN}\b(?:\ you\ \w+)?"
_FORM = r"(?:markdown|html|latex|plain\ text|json)"
#: First line that announces the text without a fence. Pages print "Here is the text of the law:".
_ANNOUNCED = re.compile(
    rf"""[*_#\s]{{0,6}}(?:(?:sure|certainly|of\ course|okay|absolutely)[,.!]*\ )?(?:
        (?:here(?:['’]s|\ is|\ are)|below\ is|the\ following\ is)\ (?:the|a|your)\ (?:\w+\ ){{0,2}}?
            (?:transcription|transcript|(?:transcribed|extracted|recognized)\ (?:text|contents?)
            |{_FORM}(?:\ \w+)?|ocr\ \w+|(?:text|contents?)(?:\ (?:extracted|transcribed))?(?={_PAGE}))(?:{_PAGE})?
            (?:\ (?:in|as|into|using)\ {_FORM}(?:\ \w+)?)?
        |the\ (?:text|contents?)\ (?:in|of|on|from)\ (?:the|this)\ (?:image|picture|photo|screenshot)
            \ (?:is|are|reads?)(?:\ as\ follows)?
        |(?:the|this)\ (?:image|picture|photo|screenshot)\ (?:contains|shows|reads)\ the\ following(?:\ text)?
        |(?:好的[，,。]?\s?)?(?:以下|下面|这)是[^\n：:]{{0,12}}(?:图片|图像|文档|页面)[^\n：:]{{0,16}}
        |(?:图片|图像)中的(?:文字|内容|文本)(?:如下|是)
        |hier\ (?:ist|folgt)\ (?:der|die)\ (?:\w+\ )?(?:text|transkription)(?:\ \w+){{0,3}}
            \ (?:bild(?:es)?|seite|dokuments?)
        |voici\ (?:le|la)\ (?:texte|transcription)(?:\ \w+){{0,3}}\ (?:l['’]image|la\ page|du\ document)
        |aqu[ií]\ (?:est[aá]|tienes)\ (?:el|la)\ (?:texto|transcripción)(?:\ \w+){{0,3}}\ (?:imagen|página|documento)
    )\ ?[:：][*_]{{0,2}}[ \t]*""",
    re.IGNORECASE | re.VERBOSE,
)
#: Last paragraph of an announced answer.
_OFFER = re.compile(
    r"(?:please )?(?:let me know if (?:you(?:['’]d| would) like|you (?:need|have|want)|there)|i hope this helps"
    r"|is there anything else|feel free to ask)\b[^\n]{0,200}\Z",
    re.IGNORECASE,
)
#: Last paragraph that is about the transcription, whether it was announced or not.
_REMARK = re.compile(
    r"\W{0,6}note:?\W{0,6}(?:the|this) (?:above )?(?:transcription|transcribed text|extracted text|markdown|ocr)\b"
    r"[^\n]{0,60}\b(?:preserves?|maintains?|retains?|reflects?|follows?|captures?|is|has been|was)\b"
    r"[^\n]{0,200}\b(?:original|format\w{0,5}|layout|image|document|structure)\b[^\n]{0,200}\Z",
    re.IGNORECASE,
)
#: First line that announces a description of a figure.
_INTRODUCED = re.compile(
    r"""[*_#\s]{0,6}(?:(?:sure|certainly|of\ course|okay|absolutely)(?:\ thing)?[,.!]*\ )?(?:
        (?:here(?:['’]s|\ is)|below\ is|the\ following\ is|this\ is)\ (?:the|a|an|your|my)\ (?:[\w-]+,?\ ){0,3}?
            (?:description|caption|summary|explanation|analysis|alt\ text)\b[^\n.:]{0,80}
        |(?:好的[，,。！!]?\s?)?(?:以下|下面|这)是[^\n：:。]{0,20}(?:描述|说明|介绍|分析)
        |hier\ ist\ (?:eine|die)\ (?:\w+\ ){0,2}beschreibung\b[^\n.:]{0,60}
        |voici\ (?:une|la)\ (?:\w+\ ){0,2}description\b[^\n.:]{0,60}
        |aqu[ií]\ (?:est[aá]|tienes)\ (?:una|la)\ (?:\w+\ ){0,2}descripción\b[^\n.:]{0,60}
    )[:：][*_]{0,2}[ \t]*""",
    re.IGNORECASE | re.VERBOSE,
)
_RULE = re.compile(r"(?:[-*_][ \t]{0,2}){3,80}|\"{3}|'{3}")


def unwrapped(text: str) -> str:
    """Return the content of a fence around the whole answer, and without one sentence of talk before and after it."""
    lines = text.split("\n")
    begin = next((number for number, line in enumerate(lines) if line.strip().startswith("```")), None)
    if begin is None:
        return text
    before = "\n".join(lines[:begin]).strip()
    announced = _TALK.match(before) is not None
    mark = lines[begin].casefold().replace(" ", "").strip()
    if mark not in (*_WRAPPERS, *_OTHER_WRAPPERS):
        return text
    whole = mark in _WRAPPERS[:2] and (announced or not before)  # a fence around a page of Markdown
    inside = lines[begin + 1 :]
    bare: list[int] = []  # fences that neither have a language, nor close one that has
    nested, last = False, -1  # `last` is the last line that is not blank
    for number, line in enumerate(inside):
        fence = line.casefold().replace(" ", "").strip()
        if fence == "```" and not nested:
            bare.append(number)
        elif fence in _WRAPPERS and whole and len(bare) % 2 and last == bare[-1]:
            inside[bare.pop()] = inside[number] = ""  # the next page
        elif fence.startswith("```"):
            nested = fence != "```"
        last = number if fence else last
    end = bare[0] if bare else None
    if whole and len(bare) > 1:
        # If their number is odd, the last one closes a fence around Markdown, and the others are those of code.
        rest, is_odd = "".join(inside[bare[-1] + 1 :]).strip(), len(bare) % 2 == 1
        if rest:
            end = bare[0] if is_odd else None
        elif is_odd:
            end = bare[-1]
    after = "\n".join(inside[end + 1 :]).strip() if end is not None else ""
    wrapped = "\n".join(inside[:end])
    if mark not in _WRAPPERS and not announced:
        is_markdown = not before and not after and _MARKDOWN.search(wrapped) and not _PROGRAM.search(wrapped)
        return wrapped if is_markdown else text
    talk = len(before) + len(after)
    is_talk = all(len(part) <= _LONGEST_TALK and "\n" not in part and part[:1] != "#" for part in (before, after))
    return wrapped if is_talk and (announced or _LEAST_WRAPPED * talk <= len(wrapped)) else text


def without_talk(text: str) -> str:
    """Return the text without a line that announces it, an offer of help at its end, and a remark about its making."""
    return _without_lines(text, _ANNOUNCED)


def is_announcement(line: str) -> bool:
    """Return whether a line announces the text of a page."""
    return len(line) <= _LONGEST_TALK and _ANNOUNCED.fullmatch(line) is not None


def without_introduction(text: str) -> str:
    """Return a description without a line that announces it, and an offer of help at its end."""
    return _without_lines(text, _INTRODUCED)


def _without_lines(text: str, first_line: re.Pattern[str]) -> str:
    first, _, rest = text.partition("\n")
    announced = len(first) <= _LONGEST_TALK and bool(rest.strip()) and first_line.fullmatch(first.strip()) is not None
    body = rest.strip() if announced else text
    before, _, last = body.rpartition("\n")
    remark = before.strip() and _REMARK.match(last.strip())
    if not announced and not remark:
        return text
    if before and (remark or _OFFER.match(last.strip())):
        body = before.rstrip()
    lines = body.split("\n")
    for end in (0, -1):  # rules around the text
        if len(lines) > 1 and (announced or end) and _RULE.fullmatch(lines[end].strip()):
            del lines[end]
    return "\n".join(lines).strip()
