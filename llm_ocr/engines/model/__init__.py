"""Pages and figures to questions for a model and back: retry ladder, judgement of answers, fallback."""
