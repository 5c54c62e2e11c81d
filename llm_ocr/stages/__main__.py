"""`python -m llm_ocr.stages extract ...` is `llm-ocr extract ...`; the one import upward (ARCHITECTURE.md)."""

from llm_ocr.cli import main

if __name__ == "__main__":
    main()
