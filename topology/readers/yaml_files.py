"""Files in JSON or YAML as values of checked types."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tuccl.errors import InputError
from tuccl.files import decode_reason

T = TypeVar("T")

_MOST_YAML_BYTES = 1 << 24


def decode_values(data: bytes, kind: type[T], place: str) -> T:
    """Return the value that ``data`` holds as JSON or YAML.

    Raises:
        InputError: it is neither, no ``kind``, or repeats itself by YAML's aliases.
    """
    try:
        if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
            return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=kind)
        return msgspec.convert(_yaml(data, place), kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{place}: {decode_reason(error, kind)}") from None


def _yaml(data: bytes, place: str) -> object:
    import yaml

    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(data) > _MOST_YAML_BYTES:
        raise InputError(
            f"{place}: over {_MOST_YAML_BYTES} bytes of YAML; write JSON, which reads faster"
        )
    try:
        # An alias stands for all it names: a small file of them would be a huge value.
        if b"*" in data and any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, Loader=loader)
        ):
            raise InputError(f"{place}: YAML aliases (*name) are not read; write them out")
        return yaml.load(data, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}" if mark is not None else place
        raise InputError(f"{where}: no YAML: {getattr(error, 'problem', '') or error}") from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{place}: no YAML: {error}") from None
