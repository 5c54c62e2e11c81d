"""Describe figures with a model."""

from collections.abc import Callable, Mapping
from typing import Any

from llm_ocr.engines import Completion, CompletionRequest, Engine, noop
from llm_ocr.engines.descriptions import MODES, known_text
from llm_ocr.engines.vlm.judging import Description, Verdict, judge_figure
from llm_ocr.engines.vlm.requests import (
    DescribeOptions,
    Step,
    Tries,
    json_values,
    profile_as_json,
    request_of,
    what_fits,
)
from llm_ocr.engines.vlm.retry import AttemptLoop, Ended, Ladder, rungs_as_json, rungs_for
from llm_ocr.errors import UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.models.profiles.shared import CHAT_PROMPTS, CLASSES, classify_prompt, structured_outputs
from llm_ocr.types import Figure, FigureRecord, Reason, Status

#: Increased when a change alters results for the same answers, or the requests; part of the key.
RESULT_VERSION = 2
#: The same for `parse` alone.
_PARSE_VERSION = 3
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
        self._profile = profile
        self._options = chosen = options or DescribeOptions()
        self._form = chosen.mode if chosen.mode in MODES else _FREE
        self._classes = chosen.classes or CLASSES
        self._prompt = _prompt(profile, chosen, self._classes)
        self._structured = structured_outputs(profile, self._form, self._classes, own_prompt=chosen.prompt is not None)
        # A model that was trained on one prompt supports no other: only chat models receive the document's text.
        self._tells = profile.prompts.get("describe") == CHAT_PROMPTS["describe"]
        self._rungs = rungs_for(profile, modes=False, scales=False)
        temperature = profile.temperature if chosen.temperature is None else chosen.temperature
        self._first = Step(chosen.mode, temperature, what_fits(profile, chosen.max_tokens))

    @property
    def name(self) -> str:
        """Model name as shown to users."""
        return self._engine.name

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
            "ladder": rungs_as_json(self._rungs),
            **options.chosen,
        }

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, on_dispatched: Callable[[], None] = noop
    ) -> FigureRecord:
        """Describe a figure and return the best available result.

        Raises:
            PageFailure: No answer is usable.
            ServerError: No server is available.
        """
        tries = Tries(self._options.max_attempts)
        malformed = None if self._form == _FREE else _MALFORMED
        loop = AttemptLoop(
            self._engine,
            _FigureTask(self, figure),
            Ladder(self._first, self._rungs, resizes=False),
            tries,
            on_dispatched,
            self._options.backoff,
            malformed,
        )
        ended = await loop.run()
        status, reason, detail, found = _outcome(ended, tries)
        return FigureRecord(
            figure_id=figure.id,
            page_id=page_id,
            document_id=document_id,
            status=status,
            mode=self._options.mode,
            reason=reason,
            detail=detail,
            description=found.description,
            data=found.data,
            label=found.label,
            engine=self.name,
            tokens_in=tries.tokens_in,
            tokens_out=tries.tokens_out,
            seconds=tries.seconds,
        )

    async def close(self) -> None:
        """Do nothing: the engine is shared."""

    def request(self, figure: Figure, step: Step) -> CompletionRequest:
        """Return the request for a figure."""
        known = known_text(figure.caption, figure.inside) if self._tells else ""
        said = f"{self._prompt}\n\nWhat the document says about it. {known}" if known else self._prompt
        return request_of(self._profile, step, figure.id, figure.image, said, vllm_settings=self._structured)

    def judge(self, answer: Completion) -> Verdict[Description]:
        """Judge an answer."""
        return judge_figure(answer, self._form, self._classes, own_prompt=self._options.prompt is not None)


class _FigureTask:
    """Task of the attempt loop for one figure."""

    def __init__(self, reader: ModelFigureReader, figure: Figure) -> None:
        self._reader = reader
        self._figure = figure

    async def request(self, step: Step) -> CompletionRequest:
        return self._reader.request(self._figure, step)

    async def judge(self, answer: Completion, step: Step) -> Verdict[Description]:
        return self._reader.judge(answer)


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


def _outcome(ended: Ended[Description], tries: Tries) -> tuple[Status, Reason | None, str, Description]:
    best, failure = ended.best, ended.failure
    if best is not None and failure is None:
        return Status.OK, None, best.verdict.detail, best.verdict.result
    if best is not None:
        return Status.DEGRADED, best.verdict.reason, ended.shortfall(len(tries.rows)), best.verdict.result
    assert failure is not None  # a loop without an answer ends with a failure
    raise failure.with_tries(tries.rows) from failure
