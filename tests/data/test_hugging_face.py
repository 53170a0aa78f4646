"""Hugging Face data sets on disk; `make test-flower` installs the library."""

import io
import sys

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from odt_sim.data.sources.hugging_face import saved_hugging_face
from odt_sim.data.store.columns import is_mapped
from odt_sim.errors import DataError

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)


@pytest.fixture(scope="module")
def datasets():
    return pytest.importorskip("datasets", reason="needs pip install datasets")


@pytest.fixture
def stores(tmp_path):
    return str(tmp_path / "stores")


def content_of_image(pixels):
    file = io.BytesIO()
    Image.fromarray(np.array(pixels, np.uint8)).save(file, "png")
    return file.getvalue()


def content_of_sound(samples):
    file = io.BytesIO()
    wavfile.write(file, 16_000, np.array(samples, np.float32))
    return file.getvalue()


@pytest.fixture
def saved(datasets, tmp_path):
    """A folder with images, sounds, tokens and texts of three examples."""
    images = [content_of_image([[pixel, 0], [0, 0]]) for pixel in (255, 51, 0)]
    sounds = [content_of_sound([level] * 3) for level in (0.5, 0.25, 0.0)]
    columns = {
        "image": [{"bytes": image, "path": None} for image in images],
        "sound": [{"bytes": sound, "path": None} for sound in sounds],
        "tokens": [[5, 6, 7], [8], []],
        "matrix": [[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]],
        "label": [1, 0, 1],
        "writer": ["bo", "al", "bo"],
        "kind": ["yes", "no", "no"],
    }
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "sound": datasets.Audio(),
            "tokens": datasets.List(datasets.Value("int64")),
            "matrix": datasets.Array2D((1, 2), "float32"),
            "label": datasets.ClassLabel(names=["a", "b", "c"]),
            "writer": datasets.Value("string"),
            "kind": datasets.Value("string"),
        }
    )
    table = datasets.table.InMemoryTable.from_pydict(columns, schema=features.arrow_schema)
    dataset = datasets.Dataset(table, datasets.DatasetInfo(features=features), fingerprint="mine")
    dataset.save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved"


def test_images_are_decoded(saved, stores):
    dataset = saved_hugging_face(saved, "image", "label", "writer", store=stores)
    assert dataset.x[:, 0, 0, 0].tolist() == pytest.approx([1, 0.2, 0])
    assert (dataset.x.shape, dataset.classes, dataset.name) == ((3, 2, 2, 1), 3, "saved")
    assert dataset.class_names == ("a", "b", "c")
    assert saved_hugging_face(saved, "image", "label", classes=4, store=stores).class_names == ()
    assert (dataset.y.tolist(), dataset.users.tolist()) == ([1, 0, 1], ["bo", "al", "bo"])
    assert is_mapped(dataset.x)
    assert saved_hugging_face(saved, "image", "label", "writer", store=stores).x.path == dataset.x.path
    assert saved_hugging_face(saved, "image", "label", size=[3, 4], channels=3, store=stores).x.shape == (3, 3, 4, 3)


def test_sounds_are_decoded(saved, stores):
    pytest.importorskip("soundfile")
    dataset = saved_hugging_face(saved, "sound", "label", store=stores)
    np.testing.assert_array_equal(dataset.x[:], [[0.5] * 3, [0.25] * 3, [0.0] * 3])
    features = saved_hugging_face(saved, "sound", "label", seconds=1, transform="mfcc", store=stores)
    assert features.x.shape == (3, 49, 10, 1)


def test_tokens_are_padded_and_cut(saved, stores):
    dataset = saved_hugging_face(saved, "tokens", "kind", length=2, store=stores)
    assert (dataset.x.tolist(), dataset.x.dtype) == ([[5, 6], [8, 0], [0, 0]], np.int32)
    assert (dataset.y.tolist(), dataset.classes) == ([1, 0, 0], 2)
    with pytest.raises(DataError, match="column 'tokens' has lists of 0 to 3 values, expected equal lengths"):
        saved_hugging_face(saved, "tokens", "kind", store=stores)


def test_mapping_gives_several_inputs_and_lists_are_targets(saved, stores):
    dataset = saved_hugging_face(saved, {"a": "matrix", "b": "label"}, "matrix", store=stores)
    assert {name: array.tolist() for name, array in dataset.x.items()} == {
        "a": [[[1, 2]], [[3, 4]], [[5, 6]]],
        "b": [1, 0, 1],
    }
    assert (dataset.y.shape, dataset.classes) == ((3, 1, 2), None)


def test_split_is_chosen(datasets, tmp_path, saved, stores):
    whole = datasets.load_from_disk(str(saved))
    datasets.DatasetDict({"train": whole.select([0, 2]), "test": whole.select([1])}).save_to_disk(
        str(tmp_path / "both")
    )
    assert saved_hugging_face(tmp_path / "both", "matrix", "label", split="train", store=stores).y.tolist() == [1, 1]
    with pytest.raises(DataError, match=r"has the splits train, test, found None; choose one: data\.split=\.\.\."):
        saved_hugging_face(tmp_path / "both", "matrix", "label", store=stores)


def test_unusable_folders_and_columns_are_refused(datasets, saved, stores, tmp_path):
    with pytest.raises(DataError, match=r"has no column 'pixels'; found: image, sound, tokens"):
        saved_hugging_face(saved, "pixels", "label", store=stores)
    with pytest.raises(DataError, match=r"column 'kind' has dtype .*, expected numbers"):
        saved_hugging_face(saved, "kind", "label", store=stores)
    with pytest.raises(
        DataError, match=r"none: contains no data set \(.*\); give a folder written by dataset\.save_to_disk"
    ):
        saved_hugging_face(tmp_path / "none", "x", "y", store=stores)


def test_missing_library_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"needs Hugging Face's datasets .*pip install 'odt_sim\[datasets\]'"):
        saved_hugging_face(tmp_path, "x", "y")
