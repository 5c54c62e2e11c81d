"""Questions made to fit the server that gets them."""

from dataclasses import replace

from llm_ocr.engines.asking import Question
from llm_ocr.engines.serving import ServerFacts


def fitted(question: Question, facts: ServerFacts) -> Question:
    """The question with fewer `max_tokens` where the server's context is smaller than its model's.

    vLLM refuses a request whose prompt and `max_tokens` do not fit together, whatever the answer would have needed.
    """
    wanted = question.settings.get("max_tokens")
    if facts.max_model_len is None or not isinstance(wanted, int):
        return question
    # What a model with a long context keeps free may be all that this server has: half of it is for the answer.
    room = max(1, facts.max_model_len - question.reserve, facts.max_model_len // 2)
    if wanted <= room:
        return question
    return replace(question, settings={**question.settings, "max_tokens": room})
