"""Read rows of Hugging Face datasets as documents: one row is one document."""
