"""The display functions under the name that older notebooks import them from."""

from llm_ocr.display import display_markdown, display_samples, render_sample_markdown

__all__ = ["display_markdown", "display_samples", "render_sample_markdown"]
