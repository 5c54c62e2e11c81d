"""`python -m llm_ocr.cli`, as the predecessor's README names the program."""

from llm_ocr.cli import main

if __name__ == "__main__":
    main()
