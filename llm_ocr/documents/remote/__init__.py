"""Read documents from object stores (s3, gs, hf) and the web (https, http)."""
