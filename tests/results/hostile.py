"""Texts that must not come alive, and what is alive in HTML."""

import re
from html.parser import HTMLParser

FENCE = "```"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
LIVE = re.compile(
    "a|em|strong|code|pre|p|img|table|thead|tbody|tfoot|tr|th|td|caption|colgroup|col|br|hr|sub|sup|b|i|u|s|div|span|ul|ol"
    "|li|h[1-6]|blockquote"
)


class Findings(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            link = name == "href" and (value or "").lower().startswith(("http://", "https://", "mailto:", "#"))
            link = link or (name == "href" and ":" not in (value or ""))
            picture = tag == "img" and (name in ("alt", "title") or (name == "src" and value == PIXEL))
            # class and start come from the renderer
            if not (link or picture or name in ("colspan", "rowspan", "align", "class", "start", "title", "style")):
                self.bad.append(f"{tag} {name}={value}")
            if name == "style" and not (value or "").startswith("text-align:"):
                self.bad.append(f"{tag} {name}={value}")
        if not LIVE.fullmatch(tag):
            self.bad.append(tag)

    def handle_data(self, data):
        self.text += data


HOSTILE = [
    "<script>alert(1)</script>",
    "<ScRiPt\n>alert(1)</sCrIpT>",
    "<img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1) //",
    f"<table>\n{FENCE}\n<img src=x onerror=alert(1)>\n{FENCE}\n</table>",
    "<table><td>`<img src=x onerror=alert(1)>`</td></table>",
    "<table><td>\\<img src=x onerror=alert(1)></td></table>",
    f"<script>\n{FENCE}\n</script>\n\n{FENCE}\n<img src=x onerror=alert(1)>\n{FENCE}",
    f"    {FENCE}\n<script>alert(1)</script>\n    {FENCE}",
    "`<b title=`<img src=x onerror=alert(1)>`",
    '<b title="`"><img src=x onerror=alert(1)>`',
    "[x](<java\tscript:alert(1)>)",
    "[x](<javascript:alert(1)>)",
    "[x](javascript&#58;alert(1))",
    "[x](java\\script:alert(1))",
    "[x\\\\](javascript:alert(1))",
    "[x](\n javascript:alert(1))",
    "[x](data:text/html;base64,AAAA)",
    "[x](vbscript:x)",
    "[x]\n\n[x]: javascript:alert(1)",
    "[x]\n\n[x]:\n  <javascript:alert(1)>",
    "<javascript:alert(1)>",
    "![x](http://tracker.example/pixel.png)",
    "![x](//tracker.example/pixel.png)",
    "![x][y]\n\n[y]: http://tracker.example/pixel.png",
    "![<script>x</script>](a b)",
    "![[x](javascript:alert(1))](y)",
    "![a](data:image/svg+xml;base64,AAAA)",
    "<iframe src=https://example.org></iframe>",
    "<!-- --><script>alert(1)</script> -->",
    "<!--> <script>alert(1)</script> -->",
    "<svg/onload=alert(1)>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><style><img src=x onerror=alert(1)>",
    '<a href="javascript:x">y</a>',
    "<style>@import 'http://tracker.example/x.css'</style>",
    "<div style='background:url(http://tracker.example)'>x</div>",
    "<td onmouseover=alert(1)>x",
    "<p/onclick=alert(1)>x</p>",
    "<?php x ?> <!DOCTYPE x> <![CDATA[<script>]]>",
    "> <script>alert(1)</script>\n> - <img src=x onerror=alert(1)>",
    "| a |\n|---|\n| <img src=x onerror=alert(1)> ` |\n| ` <script>x</script> |",
    "a\r<script>alert(1)</script>\r\n<img src=x onerror=y>",
]
