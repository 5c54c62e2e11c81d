"""Documents on object stores (s3, gs, hf) and on the web (https, http)."""
