"""Modal: a call of a deployed function per share, and the batch entry of the dots.ocr pipeline."""
