"""Tables on disk: what is saved comes back, anything else is refused, a crash breaks nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.runtime.table import atomic_dir
from tuccl.runtime.table import store as table_module
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.programs import program_file
from tuccl.runtime.table.store import check_target, load_table, save_table
from tuccl.runtime.table.text import table_text
from tuccl.topology import load_topology


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def unsealed(table: LookupTable) -> LookupTable:
    return msgspec.structs.replace(table, topology_sha256="", text_sha256="", checksum="")


def test_what_is_saved_comes_back(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    table, files = hand.usual_table(topology)
    sealed = save_table(table, tmp_path / "t", topology, files)
    stored = load_table(tmp_path / "t")
    assert stored.lookup == sealed
    assert unsealed(stored.lookup) == table
    assert stored.topology == topology
    for candidate in table.candidates:
        program = stored.program(candidate)
        assert (program is None) == candidate.is_default
        if program is not None:
            assert program_file(program).sha256 == candidate.sha256


def test_saving_twice_writes_the_same_bytes(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    table, files = hand.usual_table(topology)
    for name in ("a", "b"):
        save_table(table, tmp_path / name, topology, files)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_the_folder_holds_what_the_format_says(stored: Path) -> None:
    names = set(contents(stored))
    assert {"table.json", "table.txt", "topology.json"} <= names
    assert all(name.startswith("algorithms/") for name in names if name.endswith(".xml"))
    assert load_topology(stored / "topology.json").ranks == load_table(stored).lookup.ranks


def test_unused_programs_are_not_written(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    table = hand.table_of(topology, hand.entry(512, 1024))
    save_table(table, tmp_path / "t", topology, hand.files().values())
    assert not (tmp_path / "t" / "algorithms").exists()


def test_a_moved_folder_loads(stored: Path, tmp_path: Path) -> None:
    before = load_table(stored).lookup
    (tmp_path / "elsewhere").mkdir()
    moved = Path(shutil.move(stored, tmp_path / "elsewhere" / "other name"))
    assert load_table(moved).lookup == before


def test_every_flipped_bit_is_refused(stored: Path) -> None:
    """Any file, any bit: one line that names the folder's file, never another table."""
    pick = random.Random(20)
    original = contents(stored)
    for name, data in original.items():
        for place in pick.sample(range(len(data)), min(60, len(data))):
            damaged = bytearray(data)
            damaged[place] ^= 1 << pick.randrange(8)
            (stored / name).write_bytes(damaged)
            with pytest.raises(InputError) as refusal:
                load_table(stored)
            assert "\n" not in str(refusal.value)
        (stored / name).write_bytes(data)
    assert contents(stored) == original
    load_table(stored)


def test_every_missing_or_cut_file_is_refused(stored: Path) -> None:
    pick = random.Random(21)
    for name, data in contents(stored).items():
        (stored / name).unlink()
        with pytest.raises(InputError, match="missing"):
            load_table(stored)
        (stored / name).write_bytes(data[: pick.randrange(len(data))])
        with pytest.raises(InputError):
            load_table(stored)
        (stored / name).write_bytes(data)
    load_table(stored)


def test_text_and_json_that_disagree_are_refused(hand: SimpleNamespace, tmp_path: Path) -> None:
    """Two tables, each whole: their files must not be mixed."""
    topology = hand.mesh()
    table, files = hand.usual_table(topology)
    save_table(table, tmp_path / "a", topology, files)
    fewer = msgspec.structs.replace(table, entries=table.entries[:1])
    save_table(fewer, tmp_path / "b", topology, files)
    shutil.copy(tmp_path / "b" / "table.txt", tmp_path / "a" / "table.txt")
    with pytest.raises(InputError, match=r"table\.txt"):
        load_table(tmp_path / "a")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"tuccl-table/1", b"tuccl-table/9", "expected 'tuccl-table/1'"),
        (b'"entries"', b'"emtries"', "checksum"),
    ],
)
def test_foreign_and_edited_json_is_refused(
    stored: Path, old: bytes, new: bytes, says: str
) -> None:
    path = stored / "table.json"
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(InputError, match=says):
        load_table(stored)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe", b'{"format": 1}', b"[" * 100000])
def test_what_is_no_table_is_refused(stored: Path, text: bytes) -> None:
    (stored / "table.json").write_bytes(text)
    with pytest.raises(InputError, match=r"table\.json"):
        load_table(stored)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        load_table(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a folder"):
        load_table(tmp_path / "file")


@pytest.mark.parametrize(
    "path", ["algorithms/../../x.xml", "/etc/x.xml", "x.xml", "algorithms/.xml"]
)
def test_programs_stay_in_the_folder(hand: SimpleNamespace, path: str) -> None:
    candidate = hand.candidate(hand.files()["LL"], 1.0)
    document = msgspec.to_builtins(candidate) | {"program": path}
    with pytest.raises(msgspec.ValidationError, match="algorithms/NAME"):
        msgspec.convert(document, type(candidate))


def test_a_program_must_be_what_the_table_says(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    candidate = hand.candidate(hand.files()["LL"], 1.0)
    lying = msgspec.structs.replace(candidate, nchunks=1)
    table = hand.table_of(topology, hand.entry(512, 1024, lying))
    save_table(table, tmp_path / "t", topology, hand.files().values())
    with pytest.raises(InputError, match="disagree"):
        load_table(tmp_path / "t")


def test_saving_needs_its_programs_and_its_topology(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    table, files = hand.usual_table(topology)
    with pytest.raises(InputError, match="missing or another"):
        save_table(table, tmp_path / "t", topology, files[:1])
    with pytest.raises(InputError, match="topology"):
        save_table(table, tmp_path / "t", hand.mesh(hosts=2), files)
    assert not list(tmp_path.iterdir())


def test_what_is_no_table_is_never_replaced(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    table, files = hand.usual_table(topology)
    folder = tmp_path / "mine"
    folder.mkdir()
    check_target(folder)  # empty: may become a table
    (folder / "thesis.tex").write_text("years of work")
    for target in (folder, folder / "thesis.tex"):
        with pytest.raises(InputError):
            save_table(table, target, topology, files)
    assert contents(folder) == {"thesis.tex": b"years of work"}


def test_a_symbolic_link_to_a_table_stays_one(
    hand: SimpleNamespace, stored: Path, tmp_path: Path
) -> None:
    topology = hand.mesh()
    link = tmp_path / "link"
    link.symlink_to(stored)
    save_table(hand.table_of(topology, name="new"), link, topology, ())
    assert link.is_symlink()
    assert load_table(stored).lookup.name == "new"


class Crash(BaseException):
    """The process dies here."""


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int, exchange: bool) -> list[int]:
    """Die before step ``step`` of all renames, deletions and flushes; return the steps seen."""
    seen: list[int] = []

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            seen.append(len(seen))
            if len(seen) > step:
                raise Crash
            return call(*args, **kwargs)

        return run

    monkeypatch.setattr(os, "replace", counted(os.replace))
    monkeypatch.setattr(os, "fsync", counted(os.fsync))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    swapped = atomic_dir.exchange_names if exchange else lambda *_: False
    monkeypatch.setattr(atomic_dir, "exchange_names", counted(swapped))
    return seen


@pytest.mark.parametrize("exchange", [True, False])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_table(
    hand: SimpleNamespace, tmp_path: Path, exchange: bool
) -> None:
    topology = hand.mesh()
    table, files = hand.usual_table(topology)
    crashes = 0
    for step in range(100):
        folder = tmp_path / f"{step}" / "table"
        old = msgspec.structs.replace(table, name="old")
        save_table(old, folder, topology, files)
        with pytest.MonkeyPatch.context() as patch:
            seen = crash_at(patch, step, exchange)
            try:
                save_table(msgspec.structs.replace(table, name="new"), folder, topology, files)
            except Crash:
                crashes += 1
        assert load_table(folder).lookup.name in ("old", "new")
        save_table(msgspec.structs.replace(table, name="next"), folder, topology, files)
        assert load_table(folder).lookup.name == "next"
        if len(seen) <= step:
            break
    assert crashes >= 5


def test_without_exchange_the_old_table_is_found_between_the_renames(
    hand: SimpleNamespace, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_table(stored).lookup
    stored.rename(atomic_dir.previous_directory(stored))
    assert load_table(stored).lookup == before


def test_two_names_are_exchanged_in_one_step_where_that_works(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not atomic_dir.exchange_names(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange two names")
    assert (tmp_path / "a" / "b").exists() and (tmp_path / "b" / "a").exists()


def test_a_full_disk_leaves_the_old_table(
    hand: SimpleNamespace, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(stored)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    topology = hand.mesh()
    with pytest.raises(InputError, match="No space"):
        save_table(hand.table_of(topology), stored, topology, ())
    assert contents(stored) == before
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]


def test_the_text_is_strict_lines_of_known_fields(stored: Path) -> None:
    table = load_table(stored).lookup
    lines = (stored / "table.txt").read_text().splitlines()
    assert lines[0] == "tuccl-table-text 2"
    fields = {"table": 6, "entry": 9, "candidate": 18, "end": 2}
    assert {line.split(" ")[0] for line in lines[1:]} == set(fields)
    for line in lines[1:]:
        words = line.split(" ")
        assert len(words) == fields[words[0]] and "" not in words
    assert sum(line.startswith("entry ") for line in lines) == len(table.entries)
    assert (stored / "table.txt").read_bytes() == table_text(table)


def mangled(value: Any, pick: random.Random) -> Any:  # noqa: ANN401
    """The document with one part replaced, dropped or doubled."""
    odd: list[object] = [
        None,
        -1,
        0,
        1 << 70,
        1e400,
        "",
        "../x",
        "a b\nc",
        [],
        {},
        True,
        "\ud83d\ude00" * 200,
    ]
    if isinstance(value, dict) and value and pick.random() < 0.9:
        key = pick.choice(sorted(value))
        if pick.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: mangled(value[key], pick)}
    if isinstance(value, list) and value and pick.random() < 0.8:
        place = pick.randrange(len(value))
        if pick.random() < 0.2:
            return [*value, value[place]]
        return [*value[:place], mangled(value[place], pick), *value[place + 1 :]]
    return pick.choice(odd)


def facts(value: object) -> object:
    """Return a table without what nothing can be held against: words for people, and times."""
    words = {"name", "notes", "created_by", "tuned_on", "baseline", "stats", "checksum"}
    words |= {"sketch", "method", "chunks_per_rank", "on"}
    if isinstance(value, dict):
        return {k: facts(v) for k, v in value.items() if k not in words}
    return [facts(each) for each in value] if isinstance(value, list) else value


def test_a_resealed_lie_is_refused_in_one_line(stored: Path) -> None:
    """Whoever can edit can also compute the checksum: the content must still make sense."""
    pick = random.Random(22)
    path = stored / "table.json"
    honest = path.read_bytes()
    true = facts(msgspec.to_builtins(load_table(stored).lookup))
    for _ in range(400):
        document = mangled(json.loads(honest), pick)
        if isinstance(document, dict) and "checksum" in document:
            document["checksum"] = "0" * 64
        text = json.dumps(document)
        seal = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(text.replace('"checksum": "' + "0" * 64, '"checksum": "' + seal))
        try:
            assert facts(msgspec.to_builtins(load_table(stored).lookup)) == true
        except InputError as error:
            assert "\n" not in str(error) and len(str(error)) < 600


def test_a_sealed_program_that_computes_something_else_is_refused(
    hand: SimpleNamespace, tmp_path: Path
) -> None:
    """Checksums prove who wrote a file; the verifier proves what it does."""
    topology, good = hand.mesh(), hand.files()["LL"]
    wrong = good.xml.replace('type="cpy"', 'type="nop"', 1)
    assert wrong != good.xml
    bad = msgspec.structs.replace(good, xml=wrong)
    table = hand.table_of(topology, hand.entry(512, 4096, hand.candidate(bad, 5.0)))
    save_table(table, tmp_path / "t", topology, [bad])
    with pytest.raises(InputError, match="algorithms/") as refused:
        load_table(tmp_path / "t")
    assert "\n" not in str(refused.value)


def test_comments_that_are_no_utf8_are_kept(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology, good = hand.mesh(), hand.files()["LL"]
    strange = msgspec.structs.replace(good, xml=good.xml.replace(">", "><!-- \udce9 -->", 1))
    table = hand.table_of(topology, hand.entry(512, 4096, hand.candidate(strange, 5.0)))
    save_table(table, tmp_path / "t", topology, [strange])
    stored = load_table(tmp_path / "t")
    assert [file.sha256 for file in stored.files] == [strange.sha256]
    save_table(stored.lookup, tmp_path / "again", topology, stored.files)
    assert load_table(tmp_path / "again").lookup == stored.lookup


def test_a_candidate_that_claims_more_than_its_proof_is_refused(
    hand: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, file = hand.mesh(), hand.files()["LL"]
    monkeypatch.setattr(table_module, "max_safe_bytes", lambda *_: 1 << 20)
    for safe, fits in ((1 << 20, True), ((1 << 20) + 1, False), (0, False)):
        made = msgspec.structs.replace(hand.candidate(file, 5.0), max_safe_bytes=safe)
        table = hand.table_of(topology, hand.entry(512, 4096, made))
        save_table(table, tmp_path / "t", topology, [file])
        if fits:
            assert load_table(tmp_path / "t")
            continue
        with pytest.raises(InputError, match="max_safe_bytes"):
            load_table(tmp_path / "t")


def test_what_killed_processes_left_is_cleared(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    host = socket.gethostname()
    names = {
        f".t.tuccl-new-{host}-{dead.pid}-abc": False,
        f".t.tuccl-new-{host}-{os.getpid()}-abc": True,
        f".t.tuccl-new-elsewhere-{dead.pid}-abc": True,
        f".u.tuccl-new-{host}-{dead.pid}-abc": True,
        ".t.study": True,
    }
    for name in names:
        (tmp_path / name / "algorithms").mkdir(parents=True)
    atomic_dir.replace_directory(tmp_path / "t", {"table.json": b"{}"})
    assert {name: (tmp_path / name).exists() for name in names} == names
    assert len(list(tmp_path.iterdir())) == len(names)
