"""Requirements of each OCR model, as data: profiles and parsers. No I/O."""
