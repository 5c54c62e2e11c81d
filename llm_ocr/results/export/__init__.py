"""Results in the form of what comes next: what the formats of `llm-ocr export` are made of, without stores."""
