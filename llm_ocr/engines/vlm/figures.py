"""Describe figures with a model."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from llm_ocr.engines import Completion, CompletionRequest, Engine, noop
from llm_ocr.engines.descriptions import MODES, known_text
from llm_ocr.engines.vlm.requests import (
    DescribeOptions,
    Step,
    json_values,
    profile_as_json,
    request_of,
    what_fits,
)
from llm_ocr.engines.vlm.retry import Description, Ladder, Tries, Verdict, judge_figure, run_attempts, rungs_for
from llm_ocr.errors import UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.models.profiles.shared import CLASSES, classify_prompt, follows_instructions, structured_outputs
from llm_ocr.types import Figure, FigureRecord, Status

#: Increased when a change alters results for the same answers, or the requests; part of the key.
RESULT_VERSION = 4
#: The same for `parse` alone.
_PARSE_VERSION = 5
#: Limit of malformed answers per figure: a model that has not learned the format will not produce it by chance.
_MALFORMED = 2
_FREE = "describe"  # form of answers to a prompt with a custom name: free text


class ModelFigureReader:
    """`FigureReader` over a shared engine, which the engine's creator closes.

    A figure ends as `ok`, as `degraded` with the best of the answers, or as a `PageFailure` with all its tries. `parse`
    produces JSON in `FigureRecord.data`, `classify` one of the classes in `label`. All other modes produce text in
    `description`.
    """

    def __init__(self, engine: Engine, profile: Profile, options: DescribeOptions | None = None) -> None:
        """Configure the reader.

        Raises `UsageError` for a mode that is neither known nor the name of a custom prompt.
        """
        self._engine = engine
        self.name = engine.name
        self._profile = profile
        self._options = chosen = options or DescribeOptions()
        self._form = chosen.mode if chosen.mode in MODES else _FREE
        self._classes = chosen.classes or CLASSES
        self._prompt = _prompt(profile, chosen, self._classes)
        self._structured = structured_outputs(profile, self._form, self._classes, own_prompt=chosen.prompt is not None)
        self._tells = follows_instructions(profile)  # other models do not receive the document's text
        self._rungs = rungs_for(profile, modes=False, scales=False)
        temperature = profile.temperature if chosen.temperature is None else chosen.temperature
        self._first = Step(chosen.mode, temperature, what_fits(profile, chosen.max_tokens))

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that change descriptions, without addresses, keys, or caps of the servers."""
        options = self._options
        return {
            "engine": "model",
            "result_version": _PARSE_VERSION if self._form == "parse" else RESULT_VERSION,
            **profile_as_json(self._profile, model=options.model, revision=options.revision),
            "mode": options.mode,
            "prompt": self._prompt,
            "own_prompt": options.prompt is not None,
            "tells_what_the_document_says": self._tells,
            "structured": json_values(self._structured),
            "classes": list(self._classes) if self._form == "classify" else None,
            "temperature": self._first.temperature,
            "max_tokens": self._first.max_tokens,
            "max_attempts": options.max_attempts,
            "ladder": [asdict(rung) for rung in self._rungs],
            **options.chosen,
        }

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, on_dispatched: Callable[[], None] = noop
    ) -> FigureRecord:
        """Describe a figure; see `FigureReader.describe`. Raises `ServerError` if no server is available."""
        own_prompt = self._options.prompt is not None

        known = known_text(figure.caption, figure.inside) if self._tells else ""
        prompt = f"{self._prompt}\n\nWhat the document says about it. {known}" if known else self._prompt

        async def make_request(step: Step) -> CompletionRequest:
            return request_of(self._profile, step, figure.id, figure.image, prompt, vllm_settings=self._structured)

        async def judge(answer: Completion, step: Step) -> Verdict[Description]:
            return judge_figure(answer, self._form, self._classes, own_prompt=own_prompt, prompt=prompt)

        tries: Tries[Description] = Tries(self._options.max_attempts)
        await run_attempts(
            self._engine,
            make_request,
            judge,
            Ladder(self._first, self._rungs, resizes=False),
            tries,
            on_dispatched,
            self._options.backoff,
            most_malformed=None if self._form == _FREE else _MALFORMED,
        )
        best, failure = tries.best, tries.failure
        if best is None:
            assert failure is not None  # a loop without an answer ends with a failure
            raise failure.with_tries(tries.rows) from failure
        found = best.result
        sound = failure is None
        return FigureRecord(
            figure_id=figure.id,
            page_id=page_id,
            document_id=document_id,
            status=Status.OK if sound else Status.DEGRADED,
            mode=self._options.mode,
            reason=None if sound else best.reason,
            detail=best.detail if sound else tries.shortfall,
            description=found.description,
            data=found.data,
            label=found.label,
            engine=self.name,
            tokens_in=tries.tokens_in,
            tokens_out=tries.tokens_out,
            seconds=tries.seconds,
        )


def _prompt(profile: Profile, options: DescribeOptions, classes: tuple[str, ...]) -> str:
    prompt = profile.prompts.get(options.mode) if options.prompt is None else options.prompt
    if prompt is not None and (options.prompt is not None or options.mode in MODES):
        return classify_prompt(prompt, classes) if options.mode == "classify" else prompt
    if options.mode in MODES:
        what = "does not describe figures" if options.mode == "describe" else f"cannot {options.mode} figures"
        raise UsageError(
            f"{profile.name} {what}",
            hint="Use another model: `describe_model=qwen3-vl-8b`. Or set a prompt: `describe_prompt=TEXT`.",
        )
    raise UsageError(
        f"unknown mode for figures: {options.mode!r}",
        hint=f"Use one of {', '.join(MODES)}, or set the prompt itself: `describe_prompt=TEXT`.",
    )
