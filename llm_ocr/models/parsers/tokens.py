"""Special tokens in answers to requests with `skip_special_tokens: false`."""

# DeepSeek's tokenizer writes its own tokens with U+FF5C and U+2581.
_ANYWHERE = ("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>", "<|grounding|>")
#: End tokens of common chat templates. "</s>" is also HTML, so these are removed at the end only.
_AT_END = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<|end_of_text|>", "<end_of_utterance>", "</s>")
_MARKS = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>")
_SHORTEST_PART = 2  # a single "<" at the end may be text of the page


def without_special(text: str) -> str:
    """Return the answer without start, padding, and end tokens, and without an incomplete token at its end."""
    for token in _ANYWHERE:
        text = text.replace(token, "")
    return _without_part(without_end(text))


def without_end(text: str) -> str:
    """Return the answer up to its end tokens, without white space before them; always a prefix of `text`."""
    end = len(text)
    while True:
        end = _stripped(text, end)
        token = next((one for one in (*_AT_END, *_ANYWHERE) if text.endswith(one, 0, end)), "")
        if not token:
            return text[:end]
        end -= len(token)


def _stripped(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _without_part(text: str) -> str:
    longest = 0
    for token in (*_ANYWHERE, *_AT_END, *_MARKS):
        for length in range(_SHORTEST_PART, len(token)):
            if length > longest and text.endswith(token[:length]):
                longest = length
    return text[: len(text) - longest]
