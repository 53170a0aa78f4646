"""The files of a run: records, checkpoints and their storage."""
