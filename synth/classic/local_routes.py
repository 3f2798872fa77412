"""Routes over the links of a sketch: direct ones, paths inside a host, and spanning trees."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from heapq import heappop, heappush

from msgspec.structs import replace

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import LogicalLink, Sketch

# (parent, child, depth of the child), parents first.
Tree = tuple[tuple[int, int, int], ...]


def equal_hosts(sketch: Sketch) -> bool:
    """Return whether hosts have equally many ranks, consecutive ones, and no relay rule."""
    size = sketch.ranks // sketch.nhosts
    return not sketch.relays and sketch.hosts == tuple(rank // size for rank in range(sketch.ranks))


def require_links(sketch: Sketch, pairs: Iterable[tuple[int, int]], method: str) -> None:
    """Do nothing if the sketch has a link for each of `pairs`.

    Raises:
        Infeasible: it lacks one, which the message names.
    """
    for src, dst in pairs:
        if sketch.link(src, dst) is None:
            raise Infeasible(
                f"{method}: sends from {src} to {dst} directly, and sketch {sketch.name[:60]} has "
                "no such link; use method greedy or ring, or a sketch that keeps the link"
            )


def slowest(sketch: Sketch, pairs: Iterable[tuple[int, int]]) -> tuple[float, float]:
    """Return the highest latency in us and the highest us per byte of the links of `pairs`.

    The rate is that of a link while the links around it are as busy.
    """
    alpha, beta = 0.0, 0.0
    for pair in pairs:
        if (link := sketch.link(*pair)) is not None:
            alpha = max(alpha, link.alpha_us)
            beta = max(beta, link.beta_us_per_mb / 1e6)
    return alpha or 1.0, beta or 1e-6


def link_nics(sketch: Sketch, link: LogicalLink) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the two NICs that `link` uses, as (direction, name)."""
    bindings = sketch.bindings
    nics = link.nics or (
        bindings.get(link.src, f"rank {link.src}"),
        bindings.get(link.dst, f"rank {link.dst}"),
    )
    return ("out", nics[0]), ("in", nics[-1])


@lru_cache(maxsize=64)
def reversed_sketch(sketch: Sketch) -> Sketch:
    """Return `sketch` with all links reversed: a broadcast on it, run backwards, is a sum.

    The relay rule goes: a sum has no owner.
    """
    links = sorted(
        (replace(link, src=link.dst, dst=link.src, nics=link.nics[::-1]) for link in sketch.links),
        key=lambda link: (link.src, link.dst),
    )
    return replace(sketch, links=tuple(links), relays={})


@lru_cache(maxsize=65536)
def _reach(sketch: Sketch, root: int) -> dict[int, tuple[int, ...]]:
    """Return the path from `root` to each rank of its host: fewest hops, then widest, then ids."""
    members = set(sketch.ranks_of(sketch.hosts[root]))
    paths: dict[int, tuple[int, ...]] = {}
    heap: list[tuple[int, float, tuple[int, ...]]] = [(0, 0.0, (root,))]
    while heap:
        hops, cost, path = heappop(heap)
        if path[-1] in paths:
            continue
        paths[path[-1]] = path
        for link in sketch.out_links(path[-1]):
            if link.dst in members and link.dst not in paths:
                heappush(heap, (hops + 1, cost + link.beta_us_per_mb, (*path, link.dst)))
    return paths


def host_path(sketch: Sketch, src: int, dst: int) -> tuple[int, ...]:
    """Return the ranks from `src` to `dst`, both of one host, over links inside it.

    Raises:
        Infeasible: there is no such path.
    """
    path = _reach(sketch, src).get(dst)
    if path is None:
        raise Infeasible(
            f"sketch {sketch.name[:60]}: no path from rank {src} to rank {dst} inside their host; "
            "allow a link between them"
        )
    return path


@lru_cache(maxsize=65536)
def host_tree(sketch: Sketch, root: int) -> Tree:
    """Return a tree of links from `root` to all ranks of its host, of least depth.

    Raises:
        Infeasible: a rank of the host cannot be reached.
    """
    members = sketch.ranks_of(sketch.hosts[root])
    paths = [host_path(sketch, root, rank) for rank in members if rank != root]
    edges = {(len(path) - 1, path[-2], path[-1]) for path in paths}
    # Turned by the root, so that ranks that send at once do not all send to one.
    span = sketch.ranks
    order = sorted(edges, key=lambda e: (e[0], (e[2] - root) % span, e[1]))
    return tuple((parent, child, depth) for depth, parent, child in order)
