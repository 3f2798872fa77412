"""Exports: for any call at most one file fits, and it is what the table would choose."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.program import Gpu, Knobs, Program, parse_xml, verify
from tuccl.runtime.export import files as export_files
from tuccl.runtime.export.files import double_match, export
from tuccl.runtime.jobs.launch import run_environment
from tuccl.runtime.table.programs import program_file
from tuccl.runtime.table.selection import select
from tuccl.runtime.table.store import load_table, save_table
from tuccl.synth.baseline.nccl import nccl_program
from tuccl.synth.model.collective import REDUCING, Collective


@dataclass(frozen=True)
class Call:
    """A call as the stock scheduler is told of it: ``count`` is the API's, per rank."""

    collective: str
    count: int
    element_bytes: int
    ranks: int
    in_place: bool

    @property
    def multiplier(self) -> int:
        return (
            self.ranks
            if self.collective in ("allgather", "reducescatter", "reduce_scatter", "alltoall")
            else 1
        )

    @property
    def nbytes(self) -> int:
        return self.count * self.multiplier * self.element_bytes


def fits(text: bytes, call: Call, dialect: str) -> bool:
    """Whether the stock runtime would take the file, by docs/reference/msccl.md."""
    algo = ElementTree.fromstring(text).attrib
    if algo["coll"] != call.collective or int(algo["ngpus"]) != call.ranks:
        return False
    if (call.count * call.multiplier) % int(algo["nchunksperloop"]) or call.count == 0:
        return False
    low, high = int(algo["minBytes"]), int(algo["maxBytes"])
    if dialect == "fork":
        return low <= call.nbytes < high and call.in_place == (algo["inplace"] == "1")
    placed = algo["inplace" if call.in_place else "outofplace"] == "1"
    return placed and low <= call.nbytes and (high == 0 or call.nbytes <= high)


def random_call(pick: random.Random, ranks: int) -> Call:
    count = max(int(2 ** pick.uniform(0, 28)), 1)
    if pick.random() < 0.8:
        count = max(count // 16 * 16, 1)
    return Call("allgather", count, pick.choice([1, 2, 4, 8]), ranks, pick.random() < 0.5)


def test_programs_of_more_gpus_than_readers_take_are_not_exported(
    hand: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = hand.mesh()
    table, programs = hand.usual_table(topology)
    save_table(table, tmp_path / "table", topology, programs)
    monkeypatch.setattr(export_files, "MOST_READ_GPUS", topology.ranks - 1)
    with pytest.raises(InputError, match="MSCCL's readers take"):
        export(tmp_path / "table", "executor", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dialect", ["executor", "fork"])
def test_at_most_one_program_fits_and_it_is_the_tables_choice(
    hand: SimpleNamespace, tmp_path: Path, dialect: str
) -> None:
    topology = hand.mesh()
    table, files = hand.usual_table(topology)
    save_table(table, tmp_path / "t", topology, files)
    exported = export(tmp_path / "t", dialect, tmp_path / "out")
    texts = {file: file.read_bytes() for file in exported.files}
    stored = load_table(tmp_path / "t")
    kept = " ".join(exported.notes)
    pick = random.Random(9)
    fitted = 0
    for _ in range(3000):
        call = random_call(pick, topology.ranks)
        matches = [file for file, text in texts.items() if fits(text, call, dialect)]
        assert len(matches) <= 1
        chosen = select(
            stored.lookup,
            "allgather",
            call.nbytes,
            in_place=call.in_place,
            element_bytes=call.element_bytes,
        )
        if matches:
            fitted += 1
            program = parse_xml(texts[matches[0]], "x")
            assert (program.nchunks, program.protocol) == (
                chosen.candidate.nchunks,
                chosen.candidate.knobs.protocol if chosen.candidate.knobs else "",
            )
        elif not chosen.candidate.is_default:
            # Only where the first choice does not divide the call, or the fork is full.
            first = chosen.entry.candidates[0] if chosen.entry else chosen.candidate
            passed = first.call_refusal(call.nbytes, call.in_place, call.element_bytes)
            assert (passed and "divide" in passed) or "left out" in kept
    assert fitted > 100


def test_holes_stay_holes(hand: SimpleNamespace, stored: Path, tmp_path: Path) -> None:
    exported = export(stored, "executor", tmp_path / "out")
    for nbytes in (256, 8192, 1 << 26, 1 << 31):
        call = Call("allgather", nbytes // 4 // hand.ranks, 4, hand.ranks, False)
        assert not any(fits(f.read_bytes(), call, "executor") for f in exported.files)


@pytest.mark.parametrize("dialect", ["executor", "fork"])
def test_every_file_verifies_in_its_dialect(stored: Path, tmp_path: Path, dialect: str) -> None:
    exported = export(stored, dialect, tmp_path / "out")
    written = set((tmp_path / "out").iterdir()) - {exported.config}
    assert sorted(exported.files) == sorted(written) == list(exported.files)
    for file in exported.files:
        report = verify(parse_xml(file.read_bytes(), str(file)), dialect)
        assert report.ok and not report.warnings


def test_what_a_rank_loads_is_said(stored: Path, tmp_path: Path) -> None:
    """The fork has room for four programs in each communicator, however many it loads."""
    for dialect, kept in (("executor", 2_605_392), ("fork", 7_242_112)):
        exported = export(stored, dialect, tmp_path / dialect)
        programs = [parse_xml(file.read_bytes(), str(file)) for file in exported.files]
        load = exported.load
        assert load is not None and load.parse_s > 0
        assert load.file_bytes == sum(file.stat().st_size for file in exported.files)
        assert load.kept_bytes == kept * (4 if dialect == "fork" else len(programs))
        steps = [tb.steps for p in programs for gpu in p.gpus for tb in gpu.threadblocks]
        assert load.most["steps"] == (max(map(len, steps)), {"executor": 64, "fork": 256}[dialect])
        assert load.most["thread blocks"][0] == max(
            len(gpu.threadblocks) for p in programs for gpu in p.gpus
        )
    assert export(stored, "rccl", tmp_path / "rccl").load is None


def test_rccl_gets_only_what_it_can_run(stored: Path, tmp_path: Path) -> None:
    """Fused steps do not exist there: all programs give way to the default, with the reason."""
    exported = export(stored, "rccl", tmp_path / "out")
    assert exported.files == () and (tmp_path / "out").is_dir()
    assert any("left out: not rccl" in note for note in exported.notes)
    assert sum("tune with --dialect rccl" in note for note in exported.notes) == 1
    _, notes = run_environment(stored, "rccl", tmp_path / "cache")
    assert any("nothing to load" in note for note in notes)


def test_the_fork_gets_no_program_that_it_has_no_scratch_for(
    hand: SimpleNamespace, tmp_path: Path
) -> None:
    """It reserves scratch for a file's last size when a communicator is made."""
    topology = hand.mesh()
    plain = hand.ring_allgather("Simple", in_place=False)
    gpus = [
        Gpu(g.id, g.input_chunks, g.output_chunks, 4 * plain.nchunks, g.threadblocks)
        for g in plain.gpus
    ]
    program = Program("t", "allgather", "Simple", plain.nchannels, plain.nchunks, gpus)
    file = program_file(program.replace(in_place=False))
    entries = [
        hand.entry(1 << 20, 1 << 34, hand.candidate(file, 1.0)),
        hand.entry(1 << 34, 1 << 36),
        hand.entry(1 << 36, None, hand.candidate(file, 1.0)),
    ]
    save_table(hand.table_of(topology, *entries), tmp_path / "t", topology, [file])
    exported = export(tmp_path / "t", "fork", tmp_path / "out")
    tops = [parse_xml(f.read_bytes(), "x").max_bytes for f in exported.files]
    assert tops == [4 << 30]
    assert sum("over 16 GiB of scratch" in note for note in exported.notes) == 1


@pytest.mark.parametrize(
    "tuned", [((20, "Simple", 256), (21, "Simple", 384)), ((19, "LL", 192), (20, "Simple", 128))]
)
def test_the_fork_gets_the_threads_that_were_tuned(
    hand: SimpleNamespace, tmp_path: Path, tuned: tuple[tuple[int, str, int], ...]
) -> None:
    """It adds a warp under Simple itself (src/enqueue.cc), and checks that a slice divides."""
    topology, made = hand.mesh(), hand.files()
    entries = [
        hand.entry(1 << n, 1 << (n + 1), hand.candidate(made[p], 1.0, Knobs(p, 1, threads)))
        for n, p, threads in tuned
    ]
    save_table(hand.table_of(topology, *entries), tmp_path / "t", topology, made.values())
    exported = export(tmp_path / "t", "fork", tmp_path / "out")
    programs = [parse_xml(f.read_bytes(), "x") for f in exported.files]
    threads = {p.min_bytes: p.nthreads for p in programs}
    assert threads == {1 << n: 0 if count == 384 else count for n, _, count in tuned}
    lost = any("threads not honoured by fork" in note for note in exported.notes)
    assert lost == (0 in threads.values())


def test_the_fork_keeps_the_four_best(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    made = hand.files()
    kinds = [made["LL"], made["Simple"]]
    entries = [
        hand.entry(1 << n, 1 << (n + 1), hand.candidate(kinds[n % 2], 1.0), default_us=float(n))
        for n in range(10, 20)
    ]
    save_table(hand.table_of(topology, *entries), tmp_path / "t", topology, made.values())
    exported = export(tmp_path / "t", "fork", tmp_path / "out")
    assert len(exported.files) == 4
    lows = {parse_xml(f.read_bytes(), "x").min_bytes for f in exported.files}
    assert lows == {1 << 18, 1 << 19}
    assert sum("left out" in note for note in exported.notes) == 16


def test_the_forks_list_names_each_file_with_its_calls(stored: Path, tmp_path: Path) -> None:
    exported = export(stored, "fork", tmp_path / "o & <ut>")
    assert exported.config is not None
    first, *loads, last = exported.config.read_text().splitlines()
    assert (first, last) == ("<msccl_algos>", "</msccl_algos>")
    for line, file in zip(loads, exported.files, strict=True):
        load = dict(re.findall(r'(\w+)="([^"]*)"', line))
        assert load["path"] == str(file.resolve()), "the fork does not unescape"
        algo = ElementTree.parse(file).getroot().attrib
        said = (load["minbytes"], load["maxbytes"], load["proto"])
        assert said == (algo["minBytes"], algo["maxBytes"], algo["proto"])
    assert export(stored, "executor", tmp_path / "x").config is None


@pytest.mark.parametrize("folder", ["x" * 200 + "/" + "y" * 60, 'quo"ted'])
def test_the_fork_gets_no_list_that_it_would_misread(
    stored: Path, tmp_path: Path, folder: str
) -> None:
    exported = export(stored, "fork", tmp_path / folder)
    assert exported.files and exported.config is None
    assert not (tmp_path / folder / "msccl-config.xml").exists()
    assert any("MSCCL_XML_FILES" in note for note in exported.notes)


def test_an_export_replaces_an_export_and_nothing_else(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = export(stored, "executor", out)
    stamps = {f: f.stat().st_ino for f in first.files}
    assert export(stored, "executor", out) == first
    assert {f: f.stat().st_ino for f in first.files} == stamps, "rewritten without need"
    export(stored, "fork", out)
    (out / "notes.txt").write_text("mine")
    before = sorted(out.iterdir())
    with pytest.raises(InputError, match=r"notes\.txt"):
        export(stored, "executor", out)
    assert sorted(out.iterdir()) == before


def test_disagreeing_buffers_stay_the_runtimes_own(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    made = hand.files()

    def saved(*buffers: int) -> Path:
        entries = [
            hand.entry(
                1 << (10 + i),
                1 << (11 + i),
                hand.candidate(made["Simple"], 1.0, Knobs("Simple", 1, 256, buffer)),
            )
            for i, buffer in enumerate(buffers)
        ]
        folder = tmp_path / "t"
        save_table(hand.table_of(topology, *entries), folder, topology, made.values())
        return folder

    agreed = export(saved(1 << 20, 1 << 20), "executor", tmp_path / "a")
    assert agreed.buffers["Simple"] == 1 << 20
    assert any("threads not honoured" in note for note in agreed.notes)
    assert any("set NCCL_BUFFSIZE=1048576" in note for note in agreed.notes)
    mixed = export(saved(1 << 20, 1 << 21), "executor", tmp_path / "b")
    assert mixed.buffers["Simple"] == 4 << 20
    assert any("one for the whole process" in note for note in mixed.notes)
    assert not any("set NCCL_BUFFSIZE" in note for note in mixed.notes)


def test_rooted_and_typed_entries_are_left_out(hand: SimpleNamespace, tmp_path: Path) -> None:
    topology = hand.mesh()
    made = hand.files()
    entry = hand.entry(512, 1024, hand.candidate(made["LL"], 1.0))
    typed = msgspec.structs.replace(entry, datatype_class="4-byte")
    save_table(hand.table_of(topology, typed), tmp_path / "t", topology, made.values())
    exported = export(tmp_path / "t", "executor", tmp_path / "out")
    assert not exported.files
    assert any("ignore the datatype" in note for note in exported.notes)


def test_double_match_sees_what_it_should(stored: Path, tmp_path: Path) -> None:
    exported = export(stored, "executor", tmp_path / "out")
    contents = {f.name: f.read_bytes() for f in exported.files}
    assert double_match(contents, "executor") is None
    twice = contents | {"zzz.xml": next(iter(contents.values()))}
    assert "zzz.xml" in (double_match(twice, "executor") or "")


def test_unknown_dialects_are_refused(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dialect"):
        export(stored, "nccl", tmp_path / "out")
    assert load_table(stored).lookup and not (tmp_path / "out").exists()


def test_shipped_programs_make_the_whole_way(
    hand: SimpleNamespace, shared_data: Path, tmp_path: Path
) -> None:
    """Azure's programs for 8x H100 as candidates: into a table, out again for the executor."""
    topology = hand.mesh(ranks=8, model="H100")
    made = [
        program_file(parse_xml(path.read_bytes(), str(path)))
        for path in sorted((shared_data / "algorithms" / "azure_ndv5").glob("ag-*.xml"))
    ]
    entries = [
        hand.entry(1 << (20 + i), 1 << (21 + i), hand.candidate(file, 1.0))
        for i, file in enumerate(made)
    ]
    save_table(hand.table_of(topology, *entries), tmp_path / "t", topology, made)
    stored = load_table(tmp_path / "t")
    assert {c.sha256 for c in stored.lookup.candidates if c.program} == {f.sha256 for f in made}
    exported = export(tmp_path / "t", "executor", tmp_path / "out")
    assert len(made) >= 5 and len(exported.files) >= len({f.sha256 for f in made})
    for i, file in enumerate(made):
        nbytes = (1 << (20 + i)) + (1 << 19)
        for in_place in (False, True):
            if not (file.program.in_place if in_place else file.program.out_of_place):
                continue
            call = Call("allgather", nbytes // 4 // 8, 4, 8, in_place)
            [match] = [f for f in exported.files if fits(f.read_bytes(), call, "executor")]
            program = parse_xml(match.read_bytes(), "x")
            assert program.gpus == parse_xml(file.xml, "x").gpus


@pytest.mark.parametrize("dialect", ["executor", "fork"])
def test_several_collectives_in_one_folder_keep_apart(
    hand: SimpleNamespace, tmp_path: Path, dialect: str
) -> None:
    topology = hand.mesh()
    names = ("allgather", "reduce-scatter", "allreduce")
    made, entries = [], []
    for number, name in enumerate(names):
        program = nccl_program(topology, Collective(name, topology.ranks), "ring", 1)
        file = program_file(program.replace(in_place=dialect == "executor"), dialect)
        entry = hand.entry(1 << (10 + number), 1 << 24, hand.candidate(file, 1.0))
        kind = "plain" if name in REDUCING else "none"
        entries.append(msgspec.structs.replace(entry, collective=name, reduction_class=kind))
        made.append(file)
    table = msgspec.structs.replace(hand.table_of(topology, *entries), dialect=dialect)
    save_table(table, tmp_path / "t", topology, made)
    exported = export(tmp_path / "t", dialect, tmp_path / "out")
    texts = [file.read_bytes() for file in exported.files]
    pick, fitted = random.Random(3), set()
    for _ in range(2000):
        name = pick.choice(names)
        base = random_call(pick, topology.ranks)
        call = replace(base, collective=name.replace("-", "_" if dialect == "fork" else ""))
        matches = [text for text in texts if fits(text, call, dialect)]
        assert len(matches) <= 1
        chosen = select(
            table,
            name,
            call.nbytes,
            in_place=call.in_place,
            element_bytes=call.element_bytes,
        ).candidate
        assert bool(matches) == (not chosen.is_default)
        if matches:
            assert parse_xml(matches[0], "x").collective == name
            fitted.add(name)
    assert fitted == set(names)
