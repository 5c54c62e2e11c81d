"""`python -m llm_ocr`: the console program."""

from llm_ocr.cli import main

if __name__ == "__main__":
    main()
