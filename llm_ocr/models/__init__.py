"""What one OCR model needs, as data: profiles and parsers. No I/O."""
