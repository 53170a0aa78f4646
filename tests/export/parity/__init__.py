"""What is exported and trained beside Keras: the cases of `test_export_parity.py` and of the table in `docs/export.md`."""
