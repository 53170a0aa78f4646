"""Damaged commits: a run names the file and resumes from the last intact commit."""

import shutil

import numpy as np
import pytest
from deaths import DeathError, DiesAfterRound, Recorder

from odt_sim.errors import CheckpointError, FileError, VersionError
from odt_sim.persistence import tensor_file
from odt_sim.persistence.checkpoint import Checkpoint
from odt_sim.persistence.commit import CommitFile
from odt_sim.persistence.object_store import ObjectStore
from odt_sim.persistence.storage import Folder
from odt_sim.persistence.tensor_file import packed, unpacked
from odt_sim.simulation.run.run_settings import identity
from odt_sim.strategies.averaging.fedavg import FedAvg
from odt_sim.strategies.shared_parts.fedper import FedPer

ROUNDS, DIED = 6, 4
COMMIT, STATE = f"server.{DIED}", f"devices/000/1.{DIED}"


@pytest.fixture(scope="module")
def whole(results, tmp_path_factory):
    """Run without interruption."""
    return results(FedPer(), tmp_path_factory.mktemp("damaged") / "whole", rounds=ROUNDS)


@pytest.fixture(scope="module")
def died(simulation, tmp_path_factory):
    """Return the folder of a run that died after its fourth round."""
    folder = tmp_path_factory.mktemp("damaged") / "died"
    with pytest.raises(DeathError):
        simulation(FedPer(), folder, rounds=ROUNDS).run(observers=[DiesAfterRound(DIED)])
    return folder


def die(*given):
    raise DeathError


@pytest.fixture
def folder(died, tmp_path):
    """Return a copy of the folder."""
    return shutil.copytree(died, tmp_path / "run")


def empty(content, model):
    return b""


def torn(content, model):
    return content[:64]


def flipped(content, model):
    return bytes([*content[:-5], content[-5] ^ 4, *content[-4:]])


def of_another_model(content, model):
    return content.replace(model.fingerprint.encode(), b"0" * 64)  # the checksum fails, too


def of_a_flipped_version(content, model):
    return content.replace(b'format_version\\": \\"4', b'format_version\\": \\"5')


def another_models(content, model):
    return packed({}, {"fingerprint": "0" * 64})


def of_something_else(content, model):
    return packed({}, {"fingerprint": model.fingerprint})


CHANGES = {
    empty: "damaged or not a checkpoint",
    torn: "damaged or not a checkpoint",
    flipped: "damaged, its checksum does not match",
    of_another_model: "damaged, its checksum does not match",
    another_models: "belongs to a different model than",
    of_a_flipped_version: "damaged, its checksum does not match",
    of_something_else: "not a device state of a run (KeyError: 'layouts')",
    None: "no such checkpoint",
}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((COMMIT, change) for change in CHANGES if change),
        (STATE, torn),
        (STATE, None),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_damaged_last_commit_resumes_from_the_one_before(simulation, momentum, whole, folder, name, change):
    path = folder / "checkpoint" / f"{name}.safetensors"
    content = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(change(content, momentum))
    recorder = Recorder()
    run = simulation(FedPer(), folder, rounds=ROUNDS)
    run.run(resume=True, observers=[recorder])
    [line] = recorder.warnings
    assert line.startswith(f"{path}: {CHANGES[change]}"), line
    assert line.endswith(f": the run resumes after round {DIED - 1}")
    assert "\n" not in line
    assert recorder.rounds == [DIED, 5, 6]
    type(whole).read(folder).assert_same_bits(whole)


def test_lost_commit_counts_as_an_uncommitted_round(simulation, whole, folder):
    (folder / "checkpoint" / f"{COMMIT}.safetensors").unlink()
    simulation(FedPer(), folder, rounds=ROUNDS).run(resume=True)  # a warning would raise
    type(whole).read(folder).assert_same_bits(whole)


def test_reported_round_is_whole_too(simulation, whole, folder):
    """The last two commits are damaged; the best one before stays with its states."""
    kept = sorted(int(path.name.split(".")[1]) for path in (folder / "checkpoint").glob("server.*"))
    assert kept == [2, 3, 4]
    for round in (3, 4):
        (folder / "checkpoint" / f"server.{round}.safetensors").write_bytes(b"")
    recorder = Recorder()
    run = simulation(FedPer(), folder, rounds=ROUNDS)
    run.run(resume=True, observers=[recorder])
    assert (recorder.rounds, len(recorder.warnings)) == ([3, 4, 5, 6], 2)
    type(whole).read(folder).assert_same_bits(whole)


def test_death_during_a_resume_loses_nothing(simulation, whole, folder, monkeypatch):
    (folder / "checkpoint" / f"{COMMIT}.safetensors").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(CommitFile, "write", die)
        with pytest.raises(DeathError):
            simulation(FedPer(), folder, rounds=ROUNDS).run(resume=True, observers=[Recorder()])
    simulation(FedPer(), folder, rounds=ROUNDS).run(resume=True)
    type(whole).read(folder).assert_same_bits(whole)


def test_error_names_the_last_of_all_damaged_rounds(simulation, folder):
    for path in (folder / "checkpoint").glob("server.*"):
        path.write_bytes(path.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    with pytest.raises(
        CheckpointError,
        match=rf"{COMMIT}\.safetensors: damaged or not a checkpoint .*; restore it from a backup",
    ):
        simulation(FedPer(), folder, rounds=ROUNDS).run(resume=True)
    assert {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()} == before


def unreachable(monkeypatch, path):
    content = Folder.read

    def read(folder, name):
        if folder.where(name) == str(path):
            raise FileError(f"{path}: cannot be read (Input/output error); see who may do so")
        return content(folder, name)

    monkeypatch.setattr(Folder, "read", read)


def of_a_later_version(monkeypatch, path):
    with monkeypatch.context() as patch:
        patch.setattr(tensor_file, "FORMAT_VERSION", "5")
        path.write_bytes(packed({}, {}))


@pytest.mark.parametrize(
    ("round", "spoil", "kind", "message"),
    [
        (DIED, unreachable, FileError, "cannot be read"),
        (DIED - 1, unreachable, FileError, "cannot be read"),
        (
            DIED,
            of_a_later_version,
            VersionError,
            "format version 5, but this odt_sim reads 4; use the version of odt_sim that wrote it",
        ),
        (DIED - 1, of_a_later_version, VersionError, "format version 5"),
    ],
)
def test_unreadable_commit_is_kept(simulation, folder, monkeypatch, round, spoil, kind, message):
    path = folder / "checkpoint" / f"server.{round}.safetensors"
    spoil(monkeypatch, path)
    before = {path: path.read_bytes() for path in (folder / "checkpoint").rglob("*.*") if path.is_file()}
    with pytest.raises(kind, match=f"{path}: {message}"):
        simulation(FedPer(), folder, rounds=ROUNDS).run(resume=True)
    assert {path: path.read_bytes() for path in (folder / "checkpoint").rglob("*.*") if path.is_file()} == before


def read(storage, run):
    """Return the round to resume after, and the warnings."""
    warned = []
    checkpoint = Checkpoint(storage, run._job.model, identity(run._job, run._settings))
    checkpoint.look()
    return checkpoint.read(warned.append, lambda commit: None).round, warned


def test_copy_of_another_commit_is_refused(simulation, folder):
    name, other = COMMIT, f"server.{DIED - 1}"
    run, storage = simulation(FedPer(), folder, rounds=ROUNDS), Folder(folder / "checkpoint")
    path = folder / "checkpoint" / f"{name}.safetensors"
    shutil.copy(path.with_stem(other), path)
    round, [line] = read(storage, run)
    assert round == DIED - 1
    assert line.startswith(f"{path}: contains a copy of {other}.safetensors; restore its own content")


def without(name):
    return lambda entries: {key: value for key, value in entries.items() if key != name}


def with_entry(name, value):
    return lambda entries: {**entries, name: value}


@pytest.mark.parametrize(
    ("change_tensors", "change_texts", "error"),
    [
        (without("versions"), dict, "KeyError: 'versions'"),
        (without("failures"), dict, "KeyError: 'failures'"),
        (dict, without("round"), "KeyError: 'round'"),
        (dict, with_entry("records", "many"), "ValueError: invalid literal"),
        (with_entry("failures", np.arange(2)), dict, "TypeError: "),
    ],
)
def test_commit_with_other_entries_is_damaged(simulation, folder, change_tensors, change_texts, error):
    run, storage = simulation(FedPer(), folder, rounds=ROUNDS), Folder(folder / "checkpoint")
    path = folder / "checkpoint" / f"{COMMIT}.safetensors"
    tensors, texts = unpacked(path.read_bytes(), str(path))
    path.write_bytes(packed(change_tensors(tensors), change_texts(texts)))
    round, [line] = read(storage, run)
    assert round == DIED - 1
    assert line.startswith(f"{path}: not a commit ({error}")


def test_damaged_object_is_treated_like_a_file(simulation, results, tmp_path):
    whole = results(FedAvg(), tmp_path / "whole")
    storage = ObjectStore(f"local://{tmp_path}/objects")
    settings = {"storage": storage.uri}
    with pytest.raises(DeathError):
        simulation(FedAvg(), tmp_path / "run", **settings).run(observers=[DiesAfterRound(2)])
    storage.replace("server.2.safetensors", storage.read("server.2.safetensors")[:-64])
    recorder = Recorder()
    simulation(FedAvg(), tmp_path / "run", **settings).run(resume=True, observers=[recorder])
    assert recorder.warnings[0].startswith(f"{storage.uri}/server.2.safetensors: damaged or not a ")
    assert (tmp_path / "run" / "devices.jsonl").read_bytes() == whole.devices


def without_the_last_line(text):
    return text[: text.rindex("\n", 0, -1) + 1]


def with_another_figure(text):
    return text.replace('"train_calls": ', '"train_calls": 1', 1)


def test_lost_line_costs_a_round(simulation, whole, folder):
    records = folder / "rounds.jsonl"
    records.write_text(without_the_last_line(records.read_text()))
    recorder = Recorder()
    simulation(FedPer(), folder, rounds=ROUNDS).run(resume=True, observers=[recorder])
    [line] = recorder.warnings
    assert line.startswith(f"{records}: has {DIED - 1} rounds, but the checkpoint in ")
    type(whole).read(folder).assert_same_bits(whole)


def test_changed_records_are_refused(simulation, folder):
    records = folder / "rounds.jsonl"
    records.write_text(with_another_figure(records.read_text()))
    with pytest.raises(CheckpointError, match=rf"rounds\.jsonl: damaged, its lines up to round {DIED} differ from"):
        simulation(FedPer(), folder, rounds=ROUNDS).run(resume=True)
