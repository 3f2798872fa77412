import base64
import re
from xml.etree import ElementTree

import msgspec
import pytest

from tests.eval.conftest import LABEL, comparison
from tuccl import __version__
from tuccl.eval import Comparison, html_report, text_report
from tuccl.eval import report as report_module
from tuccl.eval.plots import bandwidth_svg, plots_available
from tuccl.synth import ScheduleChoice
from tuccl.topology import join, load_profile, machine_svg, signature
from tuccl.tuning import StoredStudy
from tuccl.tuning.searches.space import Point
from tuccl.tuning.studies.reader import Evaluation


def tree(page: str) -> ElementTree.Element:
    """Parse the page: it is well-formed XML but for its doctype."""
    assert page.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


@pytest.fixture(params=["with plots", "without"])
def page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without":
        monkeypatch.setattr(report_module, "plots_available", lambda: False)
    elif not plots_available():
        pytest.skip("matplotlib (the extra plot) is not installed")
    return html_report(comparison())


def test_the_page_is_well_formed_and_holds_every_number(page: str) -> None:
    root = tree(page)
    text = " ".join("".join(root.itertext()).split())
    for row in comparison().rows:
        assert f"{row.baseline_us:.2f}" in text
        assert f"{row.speedup:.2f}x" in text
        assert row.chosen in text
    assert [h.text for h in root.iter("h2")] == ["Speed-up", "allgather", "allreduce", "Notes"]


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


@pytest.mark.parametrize("plots", [True, False])
def test_the_page_shows_the_search(plots: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plots and not plots_available():
        pytest.skip("matplotlib (the extra plot) is not installed")
    monkeypatch.setattr(report_module, "plots_available", lambda: plots)
    studies = [study(c, 1 << k) for c in ("allgather", "allreduce") for k in range(10, 18)]
    page = html_report(comparison(), studies, "simulated on <b>")
    root = tree(page)
    assert "The search" in [h.text for h in root.iter("h2")]
    text = " ".join("".join(root.itertext()).split())
    assert "simulated on <b>" in text
    assert "71.00" in text and "PED-ANOVA" in text and "channels" in text
    labels = [e.get("aria-label", "") for e in root.iter()]
    assert [x for x in labels if x.startswith("convergence")] == (
        ["convergence-allgather", "convergence-allreduce"] if plots else []
    )


def test_a_search_in_which_nothing_ran_is_left_out() -> None:
    empty = StoredStudy("0" * 16, "allgather", 1024, study("allgather", 1024).evaluations[3:4])
    assert "The search" not in html_report(comparison(), [empty], "simulated")


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


def test_without_matplotlib_it_says_how_to_get_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "plots_available", lambda: False)
    page = html_report(comparison())
    assert "pip install matplotlib" in "".join(tree(page).itertext())
    assert "<svg" not in page


@pytest.mark.parametrize(("on", "word"), [("sim", "simulated"), ("mpi", "measured")])
def test_every_axis_and_table_says_what_its_numbers_are(on: str, word: str) -> None:
    if not plots_available():
        pytest.skip("matplotlib (the extra plot) is not installed")
    root = tree(html_report(comparison(on)))
    svg = "{http://www.w3.org/2000/svg}"
    drawings = [
        ["".join(t.itertext()) for t in s.iter(f"{svg}text")] for s in root.iter(f"{svg}svg")
    ]
    assert len(drawings) == 2 * 2  # two plots a collective
    for texts in drawings:
        assert any(LABEL in text for text in texts)  # what it ran on, at the size axis
        assert any(f"({word})" in text for text in texts)
    for table in list(root.iter("table"))[1:]:
        assert any(word in (th.text or "") for th in table.iter("th"))


def test_drawings_follow_the_pages_colours() -> None:
    if not plots_available():
        pytest.skip("matplotlib (the extra plot) is not installed")
    page = html_report(comparison())
    assert "currentColor" in page
    assert "#010203" not in page
    assert "#040506" not in page


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
        comparison(), machine=machine, command="tuccl compare <t> --report", date="2026-01-02"
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
    assert cells == ["17"] * 6
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
    page = html_report(comparison(), [study("allgather", 1 << 10)], "simulated")
    cells = {td.get("data-name"): "".join(td.itertext()) for td in tree(page).iter("td")}
    assert cells["least us in the search"] == "71.00" and cells["table's us"] == "10.00"


def test_the_legend_stands_under_the_plot() -> None:
    if not plots_available():
        pytest.skip("matplotlib (the extra plot) is not installed")
    svg = ElementTree.fromstring(bandwidth_svg(comparison(), "allgather"))
    box = svg.attrib["viewBox"].split()
    ys = [
        float(text.attrib["y"])
        for text in svg.iter("{http://www.w3.org/2000/svg}text")
        if "".join(text.itertext()) in ("tuned table", "nccl", "msccl-default")
        and "y" in text.attrib
    ]
    assert len(ys) == 3 and min(ys) > 0.85 * float(box[3])


def test_paper_and_phones_have_rules_of_their_own(page: str) -> None:
    assert "@media print" in page and "@media (max-width: 48rem)" in page
    assert "width: 36rem" not in page


def test_wide_things_scroll_by_themselves_and_say_so(page: str) -> None:
    root = tree(page)
    parents = {child: parent for parent in root.iter() for child in parent}
    svg = "{http://www.w3.org/2000/svg}svg"
    wide = [*root.iter("table"), *root.iter(svg)]
    assert wide
    assert all((parents[element].get("class") or "").startswith("scroll") for element in wide)
    assert "scroll sideways" in page
