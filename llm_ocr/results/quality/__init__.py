"""How good the answer for a page is, judged without knowing the truth.

`scoring.score` compares what was read with what is known of the page before: its text layer, where that is true, and
the ink of its image; and it looks for what no good text has. Each part is a measured share 0..1, the score that of the
worst part on one scale: a page is as good as what is worst about it. `benchmarks/quality.py` shows what it finds.

The score changes no result, and is in no key, unless pages below one are to be read again.
"""

#: Raised when a change gives the same answers other scores: with `--min-quality` it goes into the key.
VERSION = 1
