import base64
import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from tests.eval.conftest import LABEL, comparison
from tuccl import __version__
from tuccl.eval import Comparison, html_report, text_report
from tuccl.eval.report.charts import bandwidth_svg
from tuccl.runtime import LookupTable, Table
from tuccl.synth import ScheduleChoice
from tuccl.topology import Topology, join, load_profile, machine_svg, signature
from tuccl.tuning import StoredStudy
from tuccl.tuning.searches.space import Point
from tuccl.tuning.studies.reader import Evaluation

SVG = "{http://www.w3.org/2000/svg}"


def tree(page: str) -> ElementTree.Element:
    """Parse the page: it is well-formed XML but for its doctype."""
    assert page.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


@pytest.fixture(scope="module")
def page() -> str:
    return html_report(comparison())


def table_on(machine: Topology, tuned_on: str = "") -> Table:
    """A table without entries."""
    lookup = LookupTable(
        name="t",
        signature=signature(machine),
        ranks=machine.ranks,
        hosts=len(machine.hosts),
        entries=(),
        tuned_on=tuned_on,
    )
    return Table(Path("t"), lookup, machine, {})


def test_the_page_is_well_formed_and_holds_every_number(page: str) -> None:
    root = tree(page)
    text = " ".join("".join(root.itertext()).split())
    for row in comparison().rows:
        assert f"{row.baseline_us:.2f}" in text
        assert f"{row.speedup:.2f}x" in text
        assert row.chosen in text
    assert [h.text for h in root.iter("h2")] == [
        *("Speed-up", "allgather", "allreduce", "Notes", "Provenance")
    ]


def study(collective: str, nbytes: int) -> StoredStudy:
    """Thirty points, each a little faster than the one before; one cannot run."""
    points = [
        Point(ScheduleChoice("mesh <a>", "ring", 1), protocol, channels, 512, 1 << 20)
        for protocol in ("Simple", "LL")
        for channels in range(1, 16)
    ]
    rows = [Evaluation(p, "mraco-0", 1, (100.0 - i,), 0.5 * i) for i, p in enumerate(points)]
    rows[3] = Evaluation(points[3], "mraco-0", 1, (), 1.5)
    return StoredStudy("0" * 16, collective, nbytes, tuple(rows))


def test_the_page_shows_the_search() -> None:
    studies = [study(c, 1 << k) for c in ("allgather", "allreduce") for k in range(10, 18)]
    page = html_report(comparison(), studies, table_on(load_profile("v100x4"), "simulated on <b>"))
    root = tree(page)
    assert "The search" in [h.text for h in root.iter("h2")]
    text = " ".join("".join(root.itertext()).split())
    assert "simulated on <b>" in text
    assert "71.00" in text and "PED-ANOVA" in text and "channels" in text
    labels = [e.get("aria-label", "") for e in root.iter()]
    for chart in ("convergence-allgather", "seconds-allgather", "convergence-allreduce"):
        assert labels.count(chart) == 1


def test_a_search_in_which_nothing_ran_is_left_out() -> None:
    empty = StoredStudy("0" * 16, "allgather", 1024, study("allgather", 1024).evaluations[3:4])
    assert "The search" not in html_report(comparison(), [empty])


def test_the_page_needs_no_network(page: str) -> None:
    root = tree(page)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.rpartition("}")[2] in ("src", "href"):
                assert value.startswith(("#", "data:"))
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert not [e for e in root.iter() if e.tag.rpartition("}")[2] in ("script", "link")]


def test_names_are_escaped(page: str) -> None:
    assert "<a>" not in page
    assert "<gather>" not in page
    assert "&lt;a&gt; &amp; b x2" in page


def test_light_and_dark(page: str) -> None:
    assert "color-scheme: light dark" in page
    assert "prefers-color-scheme: dark" in page


@pytest.mark.parametrize(("on", "word"), [("sim", "simulated"), ("mpi", "measured")])
def test_every_axis_and_table_says_what_its_numbers_are(on: str, word: str) -> None:
    root = tree(html_report(comparison(on)))
    figures = [f for f in root.iter("figure") if f.get("class") == "chart"]
    assert len(figures) == 2 * 2  # two charts a collective
    for figure in figures:
        texts = ["".join(t.itertext()) for t in figure.iter(f"{SVG}text")]
        assert any(f"({word})" in text for text in texts)
        assert LABEL in "".join(figure.itertext())  # what it ran on, in the caption
    for table in root.iter("table"):
        assert any(word in (th.text or "") for th in table.iter("th"))


def test_drawings_follow_the_pages_colours() -> None:
    page = html_report(comparison())
    assert "currentColor" in page
    assert "var(--series-0)" in page
    assert not re.findall(r"#0(\d)0\1|#01020|#04050", page)


def test_an_empty_comparison_makes_a_page() -> None:
    full = comparison()
    empty = Comparison(
        **{
            **{f: getattr(full, f) for f in full.__struct_fields__},
            **dict.fromkeys(("rows", "tuned", "bound_us"), ()),
            "regressions": 0,
        }
    )
    tree(html_report(empty))
    assert "no regression" in text_report(empty)


def test_calls_with_different_roots_stand_apart() -> None:
    full = comparison()
    tuned = [msgspec.structs.replace(r, collective="reduce", root=0) for r in full.tuned[:3]]
    rows = [msgspec.structs.replace(r, collective="reduce", root=0) for r in full.rows[:6]]
    tuned += [msgspec.structs.replace(r, root=5, time_us=777.77) for r in tuned]
    rows += [msgspec.structs.replace(r, root=5, speedup=7.77) for r in rows]
    both = msgspec.structs.replace(full, tuned=tuple(tuned), rows=tuple(rows))
    both = msgspec.structs.replace(both, bound_us=tuple(full.bound_us))
    text = text_report(both)
    first, last = text.index("# reduce to rank 0"), text.index("# reduce to rank 5")
    assert "7.77" not in text[first:last]
    assert text[last:].count("7.77x") >= 6
    page = html_report(both)
    assert [h.text for h in tree(page).iter("h2")][1:3] == ["reduce to rank 0", "reduce to rank 5"]


def test_the_text_says_where_it_ran_and_marks_regressions() -> None:
    text = text_report(comparison())
    assert text.splitlines()[0].startswith(f"# {LABEL}")
    assert text.count("!0.90x") == 6
    assert "1.50x" in text
    assert "50%" in text  # of the bound
    assert "6 regressions" in text
    assert "note: msccl-default has no <gather>" in text


def test_the_page_says_what_was_run_on_which_machine() -> None:
    machine = join(load_profile("v100x4"), 2)
    page = html_report(
        comparison(),
        (),
        table_on(machine),
        command="tuccl compare <t> --report",
        date="2026-01-02",
    )
    root = tree(page)
    text = " ".join("".join(root.itertext()).split())
    assumed = sum(link.assumed for link in machine.links)
    assert f"of {assumed} of its {len(machine.links)} links are assumed" in text
    assert signature(machine) in text and __version__ in text
    assert "tuccl compare <t> --report" in text and "2026-01-02" in text
    [picture] = root.iter("img")
    encoded = picture.attrib["src"].removeprefix("data:image/svg+xml;base64,")
    assert base64.b64decode(encoded).decode() == machine_svg(machine)


def test_the_page_shows_sms_and_what_the_baseline_ran() -> None:
    full = comparison()
    rows = [msgspec.structs.replace(row, sms=17) for row in full.rows]
    root = tree(html_report(msgspec.structs.replace(full, rows=tuple(rows))))
    cells = ["".join(td.itertext()) for td in root.iter("td") if td.get("data-name") == "SMs"]
    assert cells == ["17"] * 12  # with the numbers and with the reasons
    assert [small.text for small in root.iter("small")][:2] == ["Ring/LL/2ch"] * 2


def test_baselines_with_the_same_times_share_a_row_and_a_column() -> None:
    full = comparison()
    twins = [
        msgspec.structs.replace(row, baseline="msccl-default-robust")
        for row in full.rows
        if row.baseline == "msccl-default"
    ]
    both = msgspec.structs.replace(
        full, rows=(*full.rows, *twins), baselines=(*full.baselines, "msccl-default-robust")
    )
    text = " ".join(tree(html_report(both)).itertext())
    assert "msccl-default = msccl-default-robust us" in text
    assert text.count("allgather vs") == 2
    apart = [msgspec.structs.replace(row, baseline_us=row.baseline_us + 1) for row in twins]
    text = " ".join(
        tree(html_report(msgspec.structs.replace(both, rows=(*full.rows, *apart)))).itertext()
    )
    assert "msccl-default-robust us" in text and text.count("allgather vs") == 3


def test_the_search_shows_the_tables_time_beside_its_own() -> None:
    page = html_report(comparison(), [study("allgather", 1 << 10)])
    cells = {td.get("data-name"): "".join(td.itertext()) for td in tree(page).iter("td")}
    assert cells["least us in the search, measured"] == "71.00" and cells["table's us"] == "10.00"


def test_the_legend_stands_under_the_chart() -> None:
    svg = ElementTree.fromstring(bandwidth_svg(comparison(), "allgather"))
    box = svg.attrib["viewBox"].split()
    ys = [
        float(text.attrib["y"])
        for text in svg.iter(f"{SVG}text")
        if "".join(text.itertext()) in ("tuned table", "nccl", "msccl-default")
        and "y" in text.attrib
    ]
    assert len(ys) == 3 and min(ys) > 0.8 * float(box[3])


def test_lines_differ_without_colour() -> None:
    svg = ElementTree.fromstring(bandwidth_svg(comparison(), "allgather"))
    looks: dict[str, set[str]] = defaultdict(set)
    for path in svg.iter(f"{SVG}path"):
        style = path.get("style", "")
        if series := re.search(r"stroke: var\(--series-(\d)\)", style):
            dashes = re.search(r"stroke-dasharray: ([^;]+)", style)
            is_marker = path.get("id") is not None
            looks[series[1]].add(path.attrib["d"] if is_marker else dashes[1] if dashes else "-")
    assert len(looks) == 3
    assert len({frozenset(look) for look in looks.values()}) == 3


def test_regressions_have_a_sign_and_a_colour_of_their_own(page: str) -> None:
    cells = [td for td in tree(page).iter("td") if td.get("class") == "regression"]
    assert ["".join(td.itertext()) for td in cells] == ["\u25bc 0.90"] * 6
    assert not [td for td in tree(page).iter("td") if td.get("class") == "slow"]


def test_tables_scroll_by_themselves_and_by_keyboard(page: str) -> None:
    root = tree(page)
    parents = {child: parent for parent in root.iter() for child in parent}
    assert list(root.iter("table"))
    for table in root.iter("table"):
        box = parents[table]
        assert (box.get("class") or "").startswith("scroll")
        assert box.get("tabindex") == "0" and box.get("aria-label")


def test_each_chart_has_its_table(page: str) -> None:
    sections = [s for s in tree(page).iter("section") if list(s.iter(f"{SVG}svg"))]
    assert len(sections) == 2
    assert all(list(section.iter("table")) for section in sections)


def test_sections_are_linked(page: str) -> None:
    root = tree(page)
    ids = {e.get("id") for e in root.iter() if e.get("id")}
    links = [a.attrib["href"] for a in root.iter("a")]
    assert len(links) == 1 + 5 and all(link[1:] in ids for link in links)
