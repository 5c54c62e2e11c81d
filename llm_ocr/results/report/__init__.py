"""One HTML page of numbers and pictures: no script, no network, everything inline.

`charts` says what is drawn, `drawing` draws it as SVG, `page` puts it together. Names may hold anything: they are text
here, never markup.
"""
