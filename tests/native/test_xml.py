"""The XML reader refuses what the runtimes refuse or misread; the writer writes what they load."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.program import Program, Step, parse_xml, to_xml, verify

SMALL = """<!-- two ranks -->
<algo name="pair" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" \
inplace="1" outofplace="0" minBytes="0" maxBytes="0">
  <gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="-1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"></step>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="-1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""


def refusal(text: str | bytes) -> str:
    """Return the one line with which the reader refuses `text`."""
    with pytest.raises(InputError) as caught:
        parse_xml(text, "f.xml")
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    return message


def changed(old: str, new: str, times: int = 1) -> str:
    """Return SMALL with the first `old` replaced, which must be there."""
    assert old in SMALL
    return SMALL.replace(old, new, times)


def test_reads_what_is_there() -> None:
    program = parse_xml(SMALL, "f.xml")
    assert (program.name, program.collective, program.protocol) == ("pair", "allgather", "LL")
    assert (program.ngpus, program.nchannels, program.nchunks) == (2, 1, 2)
    assert (program.in_place, program.out_of_place) == (True, False)
    assert (program.min_bytes, program.max_bytes, program.nthreads) == (0, 0, 0)
    gpu = program.gpus[1]
    assert (gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks) == (1, 2, 0)
    assert gpu.threadblocks[0].steps[1] == Step("r", "i", -1, "o", 0, 1)
    assert verify(program).ok and not verify(program).warnings


def test_bytes_and_text_read_alike() -> None:
    assert parse_xml(SMALL.encode()) == parse_xml(SMALL)


def test_order_of_gpus_and_threadblocks_does_not_matter() -> None:
    head, first, second = SMALL.partition("  <gpu id=")[0], *SMALL.split("  <gpu id=")[1:]
    second = second.removesuffix("</algo>\n")
    turned = f"{head}  <gpu id={second}  <gpu id={first}</algo>\n"
    assert parse_xml(turned) == parse_xml(SMALL)


LEXICAL: dict[str, tuple[str | bytes, int]] = {
    "XML declaration": ('<?xml version="1.0"?>\n' + SMALL, 1),
    "TAB": (changed("    <tb", "\t<tb"), 4),
    "single quote": (changed('name="pair"', "name='pair'"), 2),
    "newline": (changed(" proto=", "\nproto="), 2),
    "16 attributes": (changed(' name="pair"', "".join(f' x{i}="0"' for i in range(9))), 2),
    "at most 254": (changed('"pair"', '"' + "a" * 300 + '"'), 2),
    "control character": (changed('"pair"', '"a\nb"'), 2),
    "first word of a comment": (changed("<!-- two", "<!--two=2"), 1),
    "longer than 250": (changed("<!-- two", "<!--" + "a" * 251 + " two"), 1),
    "longer than 253": (changed("  <gpu", "  <" + "a" * 254 + "/>\n  <gpu"), 3),
    "comments in a row": (SMALL + "<!-- -->" * 5000, 16),
    "unterminated comment": (changed(" ranks -->", ""), 1),
    "text between elements": (changed("  <gpu", "hello <gpu"), 3),
    "expected '='": (changed(' name="pair"', " name"), 2),
    "expected '\"'": (changed('"pair"', "pair"), 2),
    "given twice": (changed(' name="pair"', ' name="a" name="b"'), 2),
    "child of <step>": (changed("></step>", "><step/></step>"), 6),
    "after </algo>": (SMALL + "<algo/>", 16),
    "expected </tb>": (changed("</tb>", "</gpu>"), 7),
    "root element": (changed("<algo", "<program"), 2),
    "ends early": (SMALL.removesuffix("</algo>\n"), 15),
    "empty file": ("", 1),
    "lacks attribute cnt": (changed(' cnt="1"', ""), 5),
    "lacks attribute proto": (changed(' proto="LL"', ""), 2),
    "lacks attribute s_chunks": (changed(' s_chunks="0"', ""), 3),
    "expected a decimal number": (changed('cnt="1"', 'cnt="two"'), 5),
    'cnt="0x1"': (changed('cnt="1"', 'cnt="0x1"'), 5),
    'cnt="01"': (changed('cnt="1"', 'cnt="01"'), 5),
    'srcoff="32768"': (changed('srcoff="0"', 'srcoff="32768"'), 5),
    'ngpus="4097"': (changed('ngpus="2"', 'ngpus="4097"'), 2),
    'hasdep="2"': (changed('hasdep="0"', 'hasdep="2"'), 5),
    'inplace="yes"': (changed('inplace="1"', 'inplace="yes"'), 2),
    'proto="ll"': (changed('proto="LL"', 'proto="ll"'), 2),
    'srcbuf="x"': (changed('srcbuf="i"', 'srcbuf="x"'), 5),
    'type="ra"': (changed('type="s"', 'type="ra"'), 5),
    'type="q"': (changed('type="s"', 'type="q"'), 5),
    'coll="alltoallv"': (changed('coll="allgather"', 'coll="alltoallv"'), 2),
    'coll="reduce-scatter"': (changed('coll="allgather"', 'coll="reduce-scatter"'), 2),
    "not UTF-8": (SMALL.encode().replace(b'"pair"', b'"\xff"'), 2),
}


@pytest.mark.parametrize("says", LEXICAL)
def test_refusals_name_the_place_and_the_reason(says: str) -> None:
    text, line = LEXICAL[says]
    message = refusal(text)
    assert message.startswith(f"f.xml:{line}: ")
    assert says in message


@pytest.mark.parametrize(
    "text",
    [
        changed("></step>", " />"),
        changed("  <gpu", "\r\n  <gpu"),
        changed("<!-- two ranks -->", "<!-- a=b > c --><!---->"),
        changed('"pair"', '"größe"'),
        changed("<!-- two", "<!--" + "a" * 250 + " two"),
        changed("  <gpu", "  <" + "a" * 253 + "/>\n  <gpu"),
        SMALL + "<!-- -->" * 4000,
        SMALL + "\n<!-- the end -->\n",
    ],
)
def test_reads_what_the_runtimes_read(text: str) -> None:
    assert verify(parse_xml(text)).ok


def test_unknown_things_are_read_over_and_reported() -> None:
    text = changed(' name="pair"', ' name="pair" redop="sum"')
    text = text.replace("  </gpu>", '    <copy i_off="0"/><copy><deep></deep></copy>\n  </gpu>', 1)
    report = verify(parse_xml(text, "f.xml"))
    assert report.ok
    assert [w.code for w in report.warnings] == ["ignored", "ignored"]
    assert "line 2: attribute redop of <algo>" in report.warnings[0].message
    assert "<copy> in <gpu> (2 times)" in report.warnings[1].message


def test_damage_at_any_byte_is_refused_or_judged() -> None:
    data = SMALL.encode()
    rng = random.Random(3)
    for at in range(len(data)):
        odd = bytes([rng.choice(b'"<>/=-09 \t\n\0\xff')])
        for damaged in (
            data[:at],
            data[:at] + data[at + 1 :],
            data[:at] + odd + data[at + 1 :],
            data[:at] + odd + data[at:],
        ):
            judge(damaged)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.text('<algo gpu tb step="/>!-\n', max_size=200))
def test_any_bytes_are_refused_or_judged(data: bytes | str) -> None:
    judge(data)


def judge(data: bytes | str) -> None:
    """Read and verify: an InputError or a report, nothing else."""
    try:
        program = parse_xml(data, "f.xml")
    except InputError as error:
        assert str(error).startswith("f.xml:")
        return
    for dialect in ("executor", "rccl", "fork"):
        verify(program, dialect)


def test_a_long_path_is_cut() -> None:
    with pytest.raises(InputError) as caught:
        parse_xml("", "x" * 10_000)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("dialect", ["executor", "rccl", "fork"])
def test_written_programs_read_back_and_load_without_a_warning(
    dialect: str, handmade: ModuleType
) -> None:
    for program in handmade.everything(4):
        one_form = program.replace(in_place=program.in_place and dialect != "fork")
        try:
            text = to_xml(one_form, dialect)
        except InputError as error:
            known = {"rccl": "rccl has no kernel", "fork": "the fork has no"}
            assert str(error).startswith(known[dialect])
            continue
        read = parse_xml(text)
        assert read.replace(max_bytes=0) == one_form.replace(min_bytes=0, max_bytes=0)
        report = verify(read, dialect)
        assert report.ok, report.errors
        assert {w.code for w in report.warnings} <= {"root", "not-intercepted", "simple-over-net"}
        assert to_xml(read, dialect) == text


def test_each_dialect_gets_its_own_words(handmade: ModuleType) -> None:
    program = handmade.ring_reduce_scatter(3).replace(in_place=False, nthreads=256)
    executor, fork = to_xml(program), to_xml(program, "fork")
    assert 'coll="reducescatter"' in executor and 'coll="reduce_scatter"' in fork
    assert 'outofplace="1" minBytes="0" maxBytes="0"' in executor and "nthreads" not in executor
    assert 'maxBytes="4611686018427387904" nthreads="256"' in fork and "outofplace" not in fork


@pytest.mark.parametrize(
    ("change", "dialect", "says"),
    [
        ({"name": 'a"b'}, "executor", "cannot be written"),
        ({"name": "a\nb"}, "executor", "cannot be written"),
        ({"name": "a" * 300}, "executor", "254"),
        ({"in_place": True}, "fork", "one file for each"),
        ({"min_bytes": 0, "max_bytes": 0}, "fork", "empty"),
        ({"nthreads": 100}, "fork", "multiple of 32"),
        ({}, "rccl", "no kernel for step type rcs"),
    ],
)
def test_what_a_dialect_cannot_say_is_refused(
    change: dict[str, object], dialect: str, says: str, handmade: ModuleType
) -> None:
    program: Program = handmade.ring_allgather(3).replace(in_place=False)
    with pytest.raises(InputError, match=says):
        to_xml(program.replace(**change), dialect)  # type: ignore[arg-type]


def test_shared_programs_read_back(shared_data: Path) -> None:
    for file in sorted(shared_data.glob("algorithms/*/*.xml")):
        dialect = "executor" if file.parent.name.startswith("azure") else "fork"
        program = parse_xml(file.read_bytes(), file.name)
        read = parse_xml(to_xml(program, dialect))
        assert read.gpus == program.gpus
        assert read.collective == program.collective and read.in_place == program.in_place
