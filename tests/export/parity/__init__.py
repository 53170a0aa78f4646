"""Cases that are exported and compared with Keras, for `test_export_parity.py` and the table in `docs/export.md`."""
