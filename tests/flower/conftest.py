"""Import Flower without the warnings of its imports, which pytest would turn into errors."""

import pytest

pytest.importorskip("flwr.serverapp.strategy")
