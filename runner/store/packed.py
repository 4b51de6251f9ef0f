"""Files of finished runs may be packed: ``records.jsonl.gz`` is read where there is no ``records.jsonl``."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

ENDING = ".gz"


def stored(path: Path) -> Path:
    """The file, or the packed one if only that exists."""
    packed = path.with_name(path.name + ENDING)
    return packed if packed.is_file() and not path.exists() else path


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Its content, to read. ``OSError`` also for a packed file that is damaged."""
    path = stored(path)
    if path.suffix != ENDING:
        with path.open("rb") as file:
            yield file
        return
    try:
        with gzip.open(path) as unpacked:
            yield cast("BinaryIO", unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise OSError(0, "it is no gzip file, or was cut short", str(path)) from None
