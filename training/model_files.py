"""Models as users name them: a reference, a file of layer sizes and times."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import msgspec

from tuccl.errors import InputError, Unavailable
from tuccl.training.model import Model, Parameter
from tuccl.training.reference_models import REFERENCE_MODELS, reference_model

_MOST_BYTES = 1 << 26
_COLUMNS = ("name", "elements", "forward_us", "backward_us")


def load_model(name_or_path: str, batch: int | None = None) -> Model:
    """Return a reference model by name, or the model of a file.

    ``mlp`` and ``module:function`` are modules of PyTorch, whose layers are timed here on one rank.
    A file is ``tuccl-model/1`` JSON, or a CSV or TSV with the columns name, elements, forward_us
    and backward_us, a line for each tensor in forward order.

    Args:
        name_or_path: of the model.
        batch: samples a step on one rank; None: as the model says, 1 of a table.

    Raises:
        InputError: there is no such model, or the file is none.
        Unavailable: it is a module, and PyTorch is not installed.
    """
    names = {name.lower().replace("-", ""): name for name in REFERENCE_MODELS}
    path = Path(name_or_path)
    if name_or_path == "mlp" or (":" in name_or_path and not path.exists()):
        return _of_module(name_or_path, batch)
    if known := names.get(name_or_path.lower().replace("-", "")):
        model = reference_model(known)
    else:
        model = _read(path)
    if batch is None:
        return model
    if batch < 1:
        raise InputError(f"batch {batch}: expected at least 1 sample")
    return msgspec.structs.replace(model, batch=batch)


def encode_model(model: Model) -> bytes:
    """Return the model as a ``tuccl-model/1`` file."""
    return msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n"


def _of_module(factory: str, batch: int | None) -> Model:
    if importlib.util.find_spec("torch") is None:
        raise Unavailable(f"--model {factory[:60]} is a module of PyTorch: pip install torch")
    from tuccl.training.ranks.modules import measured_model, module_of

    return measured_model(factory, *module_of(factory, 0), batch)


def _read(path: Path) -> Model:
    text = str(path)[:200]
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "cannot be read"
        choices = ", ".join(REFERENCE_MODELS)
        raise InputError(
            f"model {text}: {why}; expected {choices}, mlp, module:function or a file"
        ) from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{text}: over {_MOST_BYTES >> 20} MiB; expected the layers of a model")
    try:
        if data.lstrip()[:1] == b"{":
            return msgspec.json.decode(data, type=Model)
        return _of_table(data.decode("utf-8-sig"), path)
    except (msgspec.DecodeError, ValueError, RecursionError, csv.Error) as error:
        raise InputError(
            f"{text}: {error}; expected tuccl-model/1, or a table with {', '.join(_COLUMNS)}"
        ) from None


def _of_table(text: str, path: Path) -> Model:
    lines = text.splitlines()
    separator = "\t" if lines and "\t" in lines[0] else ","
    parameters = []
    for number, row in enumerate(csv.DictReader(lines, delimiter=separator), start=2):
        if any(row.get(column) is None for column in _COLUMNS):
            raise ValueError(f"line {number}: a column is missing")
        try:
            forward_us, backward_us = float(row["forward_us"]), float(row["backward_us"])
            parameters.append(Parameter(row["name"], int(row["elements"]), forward_us, backward_us))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return Model(name=path.stem, parameters=tuple(parameters), source=f"given by {path.name}")
