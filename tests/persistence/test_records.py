import re

import pytest

from docs.reference import records
from odt_sim.persistence.records import DeviceRecord, RoundRecord, columns_of
from odt_sim.persistence.summary import Summary

ROUND = {
    **{"round": 2, "strategy": "fedavg", "devices": 3, "excluded": 1, "excluded_devices": [4]},
    **{"excluded_reasons": {"4": "timed out"}, "train_loss": None, "bytes_down": 8, "bytes_up": 8, "seconds": 0.5},
}


def test_record_has_fields_and_is_a_mapping_in_the_order_of_the_file():
    record = RoundRecord.of({**ROUND, "accuracy": 0.5, "not_evaluated": {"7": "state not finite"}})
    assert (record.round, record.excluded_reasons, record.stragglers) == (2, {4: "timed out"}, 0)
    assert record.figures == {"accuracy": 0.5}
    assert record.not_evaluated == {7: "state not finite"}
    assert list(record) == [*ROUND, "accuracy", "not_evaluated"]
    assert record["accuracy"] == 0.5
    assert record.get("loss") is None
    assert "stragglers" not in record


def test_built_record_has_its_fields_before_its_figures():
    costs = {"train_loss": 1.0, "bytes_down": 0, "bytes_up": 0, "seconds": 0.5}
    record = RoundRecord(round=1, strategy="local", devices=2, **costs, figures={"accuracy": 1.0})
    *fields, last = record
    assert fields == [name for name in columns_of(RoundRecord) if name not in RoundRecord.OPTIONAL]
    assert last == "accuracy"


@pytest.mark.parametrize("record", [RoundRecord, DeviceRecord, Summary])
def test_missing_column_is_named(record):
    first = next(iter(columns_of(record)))
    with pytest.raises(ValueError, match=f"lacks '{first}'"):
        record.of({})


def test_reference_page_documents_every_column():
    columns = {*columns_of(RoundRecord), *columns_of(DeviceRecord), *columns_of(Summary)}
    documented = dict(re.findall(r"^\| \*?`(\w+)`\*? \| [^|]+ \| ([^|]+) \|$", records(), re.MULTILINE))
    assert columns <= set(documented)
