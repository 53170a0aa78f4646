import json

import numpy as np
import pytest

from odt_sim.data.sources.published import CHARACTERS, femnist, sent140, shakespeare
from odt_sim.errors import DataError


def write(path, **users):
    """Write a LEAF file from user names and pairs of x and y."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    counts = [len(y) for _, y in users.values()]
    path.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": data}))


def test_femnist_joins_train_and_test(tmp_path):
    white, black = [1.0] * 784, [0.0] * 783 + [0.5]
    write(tmp_path / "train" / "all_data_0.json", f01=([white, black], [0, 61]), f02=([white], [5]))
    write(tmp_path / "test" / "all_data_0.json", f01=([black], [7]))
    dataset = femnist(tmp_path)
    assert (dataset.x.shape, dataset.x.dtype, dataset.classes) == ((4, 28, 28, 1), np.float32, 62)
    assert dataset.x[:, 27, 27, 0].tolist() == [1, 0.5, 1, 0.5]
    assert dataset.y.tolist() == [0, 61, 5, 7]
    assert dataset.users.tolist() == ["f01", "f01", "f02", "f01"]


def test_shakespeare_encodes_characters(tmp_path):
    assert (len(CHARACTERS), CHARACTERS[0], CHARACTERS[79]) == (80, "\n", "}")
    write(tmp_path / "data.json", HAMLET=(["to b", "o be"], ["e", "\n"]))
    dataset = shakespeare(tmp_path)
    assert ["".join(CHARACTERS[i] for i in row) for row in dataset.x] == ["to b", "o be"]
    assert dataset.y.tolist() == [CHARACTERS.index("e"), 0]
    assert (dataset.x.dtype, dataset.classes) == (np.int32, 80)


def test_sent140_encodes_frequent_words(tmp_path):
    def tweet(text):
        return ["1", "Mon", "NO_QUERY", "someone", text, "training"]

    write(tmp_path / "a.json", ann=([tweet("so good, so good!"), tweet("good")], [1, 1]))
    write(tmp_path / "b.json", bob=([tweet("bad")], ["0"]))
    dataset = sent140(tmp_path, words=5, length=4)  # good 3, so 2, then ! of those with 1
    assert dataset.x.tolist() == [[3, 2, 4, 3], [2, 0, 0, 0], [1, 0, 0, 0]]
    assert (dataset.y.tolist(), dataset.users.tolist()) == ([1, 1, 0], ["ann", "ann", "bob"])


def test_folder_without_files_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no \.json files"):
        femnist(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"a\.json: is not a LEAF file \(JSONDecodeError"),
        ("{}", r"a\.json: is not a LEAF file \(KeyError: 'user_data'"),
        ('{"user_data": {"u": {"x": [1], "y": []}}}', "user u has 1 x and 0 y"),
        ('{"user_data": {"u": {"x": [[1, 2]], "y": [0]}}}', "does not contain LEAF's femnist"),
        ('{"user_data": {"u": {"x": ["text"], "y": [0]}}}', "does not contain LEAF's femnist"),
    ],
)
def test_file_of_another_kind_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        femnist(tmp_path)
    assert "\n" not in str(caught.value)


def test_unknown_character_is_named(tmp_path):
    write(tmp_path / "a.json", u=(["caf\u00e9"], ["s"]))
    with pytest.raises(DataError, match="'\u00e9' is not one of LEAF's 80 characters"):
        shakespeare(tmp_path)


def test_vocabulary_out_of_range_is_refused(tmp_path):
    with pytest.raises(DataError, match="expected words of at least 3 and length of at least 1, found 2, 4"):
        sent140(tmp_path, words=2, length=4)
