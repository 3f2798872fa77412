"""Transformers by the sizes that the calls of a training step depend on; the published ones."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason, printable_path, read_bounded

_MOST_BYTES = 1 << 20
_MOST = 1 << 24  # of a width, of layers
_TOLERANCE = 0.02


class Transformer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A decoder, by its sizes; as JSON like those of ``training/transformers.json``.

    Attributes:
        name: The model's.
        source: Where the sizes are published.
        parameters: As published; those of the sizes are within 2 % of it.
        layers: All, dense and of experts.
        hidden: Width between layers.
        ffn: Width inside the MLP of a dense layer.
        vocabulary: Rows of the embedding.
        attention: Rows and columns of each weight of a layer's attention.
        key_value: Width of a layer's keys, and of its values.
        sequence: Tokens of a sequence, as it was trained.
        gathered: Widths of what attention's column-parallel weights read; empty: ``hidden``.
        gated: Whether an MLP has three weights, else two.
        tied: Whether the output layer has the embedding's weights.
        experts: Of a layer of experts; 0: all layers are dense.
        top_k: Experts that compute a token.
        expert_ffn: Width inside an expert.
        shared_experts: Those that compute every token, beside the others.
        dense_layers: Layers before the first of experts.
    """

    name: str
    parameters: int
    layers: int
    hidden: int
    ffn: int
    vocabulary: int
    attention: tuple[tuple[int, int], ...]
    key_value: int
    sequence: int
    source: str = ""
    gathered: tuple[int, ...] = ()
    gated: bool = True
    tied: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be, or that do not make the parameters."""
        sizes = [self.layers, self.hidden, self.ffn, self.vocabulary, self.key_value, self.sequence]
        sizes += [size for shape in self.attention for size in shape] + list(self.gathered)
        sizes += [self.top_k, self.expert_ffn] if self.experts else []
        counts = self.experts, self.shared_experts, self.dense_layers
        if not all(0 < n <= _MOST for n in sizes) or not all(0 <= n <= _MOST for n in counts):
            raise ValueError(f"expected sizes of 1 to {_MOST}")
        if self.dense_layers >= self.layers or self.top_k > self.experts:
            raise ValueError("expected fewer dense_layers than layers, and top_k up to experts")
        found = (
            (self.layers - self.expert_layers) * (self.attention_parameters + self.mlp(self.ffn))
            + self.expert_layers * (self.shared_parameters + self.expert_parameters)
            + self.embedding_parameters * (1 if self.tied else 2)
        )
        if abs(found - self.parameters) > _TOLERANCE * found:
            raise ValueError(f"parameters {self.parameters}: its sizes make {found}")

    @property
    def expert_layers(self) -> int:
        """Return the number of layers of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def embedding_parameters(self) -> int:
        """Return the parameters of the embedding."""
        return self.vocabulary * self.hidden

    @property
    def attention_parameters(self) -> int:
        """Return the parameters of a layer's attention."""
        return sum(rows * columns for rows, columns in self.attention)

    @property
    def shared_parameters(self) -> int:
        """Return those of a layer of experts that compute every token, with the router's."""
        shared = self.shared_experts * self.mlp(self.expert_ffn)
        return self.attention_parameters + self.hidden * self.experts + shared

    @property
    def expert_parameters(self) -> int:
        """Return those of a layer's experts that compute some tokens."""
        return self.experts * self.mlp(self.expert_ffn)

    def mlp(self, width: int) -> int:
        """Return the parameters of an MLP that is ``width`` wide inside."""
        return (3 if self.gated else 2) * self.hidden * width


@cache
def published_transformers() -> dict[str, Transformer]:
    """Return the published transformers by name.

    >>> published_transformers()["LLaMA-3-70B"].layers
    80
    """
    data = files("tuccl.training").joinpath("transformers.json").read_bytes()
    found = msgspec.json.decode(data, type=tuple[Transformer, ...])
    return {each.name: each for each in found}


def load_transformer(name_or_path: str) -> Transformer:
    """Return a published transformer by name, in any case, or that of a JSON file.

    Raises:
        InputError: there is none of the name, or the file is none.
    """
    published = published_transformers()
    known = {name.lower(): each for name, each in published.items()}
    if found := known.get(name_or_path.lower()):
        return found
    place = printable_path(name_or_path)
    if not Path(name_or_path).exists():
        raise InputError(f"--model {place}: expected {', '.join(published)} or a file of its sizes")
    try:
        return msgspec.json.decode(read_bounded(name_or_path, _MOST_BYTES), type=Transformer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{place}: {decode_reason(error, Transformer)}") from None
