"""The text layer of a page as help for the model that reads it."""

#: The place of the text in a prompt.
PLACE = "{text}"
#: Characters of a token, at the least, in ordinary script.
_CHARACTERS = 2
_GAP = "\n[...]\n"


def fitted(text: str, most: int) -> str:
    """The text in at most `most` characters: what is too much is left out of its middle, between words if possible."""
    if len(text) <= most:
        return text
    half = max(0, most - len(_GAP)) // 2
    if not half:
        return text[:most]
    return f"{_first(text[: half + 1], half)}{_GAP}{_first(text[: -half - 2 : -1], half)[::-1]}"


def tokens(text: str) -> int:
    """The most tokens that the text takes of the context."""
    return -(-len(text) // _CHARACTERS)


def _first(text: str, most: int) -> str:
    """The first words in so many characters; all of these where they are one word."""
    cut = max(text.rfind(" "), text.rfind("\n"))
    return (text[:cut] if cut > most // 2 else text[:most]).rstrip()
