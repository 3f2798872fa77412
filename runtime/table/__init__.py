"""The lookup table: entries, files, locks, selection, what jobs observed."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.table.entry import (
        Candidate,
        Entry,
        KnobValues,
        Statistics,
        default_candidate,
        reduction_class,
    )
    from tuccl.runtime.table.lock import in_use
    from tuccl.runtime.table.lookup import LookupTable, check_entries, ranges_from_sizes
    from tuccl.runtime.table.merge_observed import ObservedTiming, merge_observed, observed_timings
    from tuccl.runtime.table.preference import (
        PREFERENCES,
        entry_preferring,
        pareto_set,
        table_preferring,
    )
    from tuccl.runtime.table.programs import (
        ProgramFile,
        placements,
        program_candidate,
        program_file,
    )
    from tuccl.runtime.table.selection import Choice, Explanation, explain, select
    from tuccl.runtime.table.store import Table, check_target, load_table, save_table
    from tuccl.runtime.table.supported_knobs import fork_threads, hangs_between_hosts

__all__ = [
    "PREFERENCES",
    "Candidate",
    "Choice",
    "Entry",
    "Explanation",
    "KnobValues",
    "LookupTable",
    "ObservedTiming",
    "ProgramFile",
    "Statistics",
    "Table",
    "check_entries",
    "check_target",
    "default_candidate",
    "entry_preferring",
    "explain",
    "fork_threads",
    "hangs_between_hosts",
    "in_use",
    "load_table",
    "merge_observed",
    "observed_timings",
    "pareto_set",
    "placements",
    "program_candidate",
    "program_file",
    "ranges_from_sizes",
    "reduction_class",
    "save_table",
    "select",
    "table_preferring",
]

make_lazy(__name__)
