"""Entry point of `python -m llm_ocr_platforms.runpod`."""

from llm_ocr_platforms.runpod import main

if __name__ == "__main__":
    main()
