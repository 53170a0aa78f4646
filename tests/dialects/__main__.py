"""`python -m dialects DIRECTORY FILE ...`: write the models of generators into a folder each."""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    for file in sys.argv[2:]:
        folder = Path(sys.argv[1]) / file
        folder.mkdir()
        import_module(f"dialects.files.{file}").write_all(folder)
