"""The viewer: a static site of pages beside what was read of them; it opens from disk, without a server.

<output>/index.html                 names the folder of the newest site; replaced last
<output>/llm-ocr-view.json          says that the folder is ours
<output>/site-<8 hex>/viewer.css, *.js, katex/
<output>/site-<8 hex>/data/         scripts that call `llmOcr(name, value)`: browsers fetch no JSON from file:// URLs
<output>/site-<8 hex>/images/       page images and figures, named by numbers alone
"""
