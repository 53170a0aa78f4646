"""Data sources: built-in, tables, folders of files, Hugging Face, published sets."""
