import math
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from tests.tuning.conftest import Stand, evaluations
from tuccl.errors import InputError
from tuccl.topology import Topology, signature
from tuccl.tuning import TuneOptions, importances, read_studies, study_folder, tune
from tuccl.tuning.studies.database import Database
from tuccl.tuning.studies.storages import close_storage, open_url

SIZES = [1 << 14, 1 << 20]


@pytest.fixture(scope="module")
def table(topology: Topology, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reader") / "table"
    tune(topology, ["allgather"], SIZES, Stand, TuneOptions(budget=80), path=out)
    return out


def test_studies_hold_every_evaluation_in_order(table: Path, topology: Topology) -> None:
    studies = read_studies(study_folder(table))
    assert [(s.collective, s.nbytes) for s in studies] == [("allgather", n) for n in SIZES]
    assert {s.signature for s in studies} == {signature(topology)}
    assert sum(len(s.evaluations) for s in studies) == len(evaluations(table))
    for study in studies:
        seconds = [e.seconds for e in study.evaluations]
        assert seconds == sorted(seconds) and seconds[0] == 0.0
        assert {e.run for e in study.evaluations} == {"descent-0"}


def test_the_best_so_far_falls_to_the_best(table: Path) -> None:
    for study in read_studies(study_folder(table)):
        times = [us for _, _, us in study.best_so_far]
        assert times == sorted(times, reverse=True)
        assert times[-1] == min(e.us for e in study.evaluations)
        for dimension in ("method", "protocol"):
            best = study.best_by(dimension)
            assert min(best.values()) == times[-1]
            assert len(best) > 1


def test_importances_are_shares(table: Path) -> None:
    for study in read_studies(str(study_folder(table))):
        shares = importances(study)
        assert math.isclose(sum(shares.values()), 1.0)
        assert set(shares) <= {
            *("method", "sketch", "chunking", "protocol", "channels", "threads", "buffer")
        }
        few = type(study)(study.signature, study.collective, 1, study.evaluations[:3])
        assert importances(few) == {}


def test_a_folder_without_a_study_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no study"):
        read_studies(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_studies(f"sqlite:///{tmp_path}/none.db")
    assert not list(tmp_path.iterdir())
    journal = study_folder(table) / "journal.log"
    for content in (b"no journal\nat all\n", journal.read_bytes().replace(b'"samples_us"', b'"x"')):
        (tmp_path / "journal.log").write_bytes(content)
        with pytest.raises(InputError):
            read_studies(tmp_path)


def test_a_journal_is_read_while_it_is_written(table: Path, tmp_path: Path) -> None:
    content = (study_folder(table) / "journal.log").read_bytes()
    half = content[: content.rindex(b'"params"')]
    (tmp_path / "journal.log").write_bytes(half)
    cut = sum(len(s.evaluations) for s in read_studies(tmp_path))
    assert 0 < cut < sum(len(s.evaluations) for s in read_studies(study_folder(table)))
    assert (tmp_path / "journal.log").read_bytes() == half


def test_no_connection_outlives_what_reads_a_database_or_fails_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Engine] = []
    dispose = Engine.dispose

    def counted(engine: Engine) -> None:
        closed.append(engine)
        dispose(engine)

    monkeypatch.setattr(Engine, "dispose", counted)
    url = f"sqlite:///{tmp_path}/studies.db"
    close_storage(open_url(url))
    assert len(closed) == 1
    assert read_studies(url) == () and len(closed) == 2

    def fails(*_: object) -> None:
        raise RuntimeError("gone")

    monkeypatch.setattr("optuna.storages._rdb.storage._VersionManager", fails)
    with pytest.raises(RuntimeError, match="gone"):
        Database(url)
    assert len(closed) == 3
