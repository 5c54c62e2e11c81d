"""Where a page or figure stands on its profile's retry ladder."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from llm_ocr.engines.model.tries import Step
from llm_ocr.models.profile import Profile, Rung

#: What a prompt that does not fit is cut by: the sides of its image, and, since that may be the cause, its answer.
SHRINK_IMAGE, SHRINK_ANSWER = 0.7, 0.5


class Ladder:
    """The request to make next. The last rung repeats; without rungs the first request does.

    `resizes`: images can be made smaller; without, a request that does not fit only asks for a shorter answer.
    """

    def __init__(self, first: Step, rungs: Sequence[Rung], *, resizes: bool = True) -> None:
        self._first = first
        self._rungs = rungs
        self._shrink_image = SHRINK_IMAGE if resizes else 1.0
        self._climbed = 0
        self._shrunk = False

    @property
    def step(self) -> Step:
        """A rung never lowers the temperature: the same answer would come again."""
        step = self._first
        if self._climbed and self._rungs:
            rung = self._rungs[min(self._climbed, len(self._rungs)) - 1]
            warmer = step.temperature if rung.temperature is None else max(rung.temperature, step.temperature)
            step = replace(step, mode=rung.mode or step.mode, temperature=warmer, scale=rung.scale)
        if self._shrunk:
            smaller = max(1, int(step.max_tokens * SHRINK_ANSWER))
            step = replace(step, scale=step.scale * self._shrink_image, max_tokens=smaller)
        return step

    def climb(self) -> None:
        """The answer was no good."""
        self._climbed += 1

    def shrink(self) -> bool:
        """The request did not fit: all from now on are smaller. False when they already are."""
        shrunk, self._shrunk = self._shrunk, True
        return not shrunk


def rungs_for(profile: Profile, *, modes: bool = True, scales: bool = True) -> tuple[Rung, ...]:
    """The profile's ladder, without other prompts or sizes of the image where they make no sense."""
    rungs = [
        replace(rung, mode=rung.mode if modes else None, scale=rung.scale if scales else 1.0) for rung in profile.ladder
    ]
    return tuple(rung for rung in rungs if rung != Rung())


def rungs_as_json(rungs: Sequence[Rung]) -> list[dict[str, Any]]:
    """The ladder for a key."""
    return [asdict(rung) for rung in rungs]
