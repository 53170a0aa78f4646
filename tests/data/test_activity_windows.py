import numpy as np
import pytest

from odt_sim.data.sources.published import SIGNALS, uci_har
from odt_sim.errors import DataError


def windows(length, start=0.0):
    """Return windows `[windows, 9, 8]` of a recording that overlap by half."""
    recording = start + np.arange(9)[:, np.newaxis] + np.arange(length) / 64
    return np.stack([recording[:, i : i + 8] for i in range(0, length - 7, 4)]).astype(np.float32)


@pytest.fixture
def people():
    """Person 1 walks, lies down and stands; person 2, in the test folder, sits."""
    return {
        "train": (np.concatenate([windows(16), windows(12, 20), windows(8, 40)]), [1, 1, 1, 6, 6, 5], [1] * 6),
        "test": (windows(12, 60), [4, 4], [2, 2]),
    }


@pytest.fixture
def folder(tmp_path, people):
    """The unpacked folder."""
    for part, (x, y, subject) in people.items():
        (tmp_path / part / "Inertial Signals").mkdir(parents=True)
        for channel, signal in enumerate(SIGNALS):
            np.savetxt(tmp_path / part / "Inertial Signals" / f"{signal}_{part}.txt", x[:, channel], "%16.7e")
        np.savetxt(tmp_path / part / f"y_{part}.txt", y, "%d")
        np.savetxt(tmp_path / part / f"subject_{part}.txt", subject, "%d")
    return tmp_path


def test_folder_is_read_with_sequences(folder, people):
    dataset = uci_har(folder)
    np.testing.assert_allclose(dataset.x, np.concatenate([people["train"][0], people["test"][0]]), rtol=1e-6)
    assert dataset.y.tolist() == [0, 0, 0, 5, 5, 4, 3, 3]
    assert dataset.users.tolist() == [1, 1, 1, 1, 1, 1, 2, 2]
    assert (dataset.name, dataset.classes, dataset.x.dtype) == ("uci_har", 6, np.float32)
    assert dataset.sequences.tolist() == [0, 0, 0, 1, 1, 2, 3, 3]


def test_npz_equals_folder(folder, people, tmp_path):
    x, y, subject = (np.concatenate(arrays) for arrays in zip(people["train"], people["test"], strict=True))
    np.savez(tmp_path / "har.npz", x=x, y=(y - 1).astype(np.int8), subject=subject.astype(np.int8))
    one, other = uci_har(folder), uci_har(tmp_path / "har.npz")
    np.testing.assert_allclose(one.x, other.x, rtol=1e-6)
    for name in ("y", "users", "sequences"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_sequence_ends_with_the_person(tmp_path):
    np.savez(tmp_path / "har.npz", x=windows(16), y=np.zeros(3, np.int8), subject=np.array([1, 1, 2]))
    assert uci_har(tmp_path / "har.npz").sequences.tolist() == [0, 0, 1]


SIGNAL = "train/Inertial Signals/body_acc_x_train.txt"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("test/y_test.txt", None, r"y_test\.txt: no such file; give the path of the unpacked folder 'UCI HAR Dataset'"),
        (SIGNAL, "1 2\n3 x\n", r"body_acc_x_train\.txt: cannot be read .*download it again"),
        (SIGNAL, "1 2\n3 4\n", r"its signals have different shapes, \[\(2, 2\), \(6, 8\)\]; download it again"),
    ],
)
def test_unusable_file_is_named(folder, file, content, message):
    (folder / file).unlink()
    if content:
        (folder / file).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        uci_har(folder)
    assert "\n" not in str(caught.value)


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="har: does not exist; give the path of the unpacked folder 'UCI HAR Dataset'"):
        uci_har(tmp_path / "har")


def test_features_are_not_signals(tmp_path):
    np.savez(tmp_path / "har.npz", x=np.zeros((3, 561)), y=np.zeros(3, int), subject=np.ones(3, int))
    with pytest.raises(DataError, match=r"x has shape \[3, 561\], expected \[windows, 9, samples\]"):
        uci_har(tmp_path / "har.npz")
