"""Reads and writes the safetensors format with torch alone. Environments exchange tensors in it.

The format: eight bytes with the length of a JSON header; the header, with type, shape and offsets of each
tensor; the data, one tensor after the other. The ``safetensors`` package, which an environment may not have,
reads the same files.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

LENGTH_BYTES = 8
ALIGNMENT = 8
METADATA = "__metadata__"
# the format's name of a type: torch's name (an older torch may not have all of them)
WORDS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


def _types() -> dict[str, torch.dtype]:
    return {word: getattr(torch, name) for word, name in WORDS.items() if hasattr(torch, name)}


def write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Writes tensors of any device. ``ValueError`` for a type or layout that the format does not have."""
    words = {kind: word for word, kind in _types().items()}
    for name, tensor in tensors.items():
        if tensor.dtype not in words or tensor.layout is not torch.strided:
            raise ValueError(
                f"{name} is a tensor of {tensor.dtype} ({tensor.layout}), which safetensors cannot store"
            )
    # sorted by size of element, largest first, so that every tensor is aligned to its elements
    names = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": words[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(LENGTH_BYTES, "little"))
        file.write(text)
        for name in names:
            plain = tensors[name].detach().cpu().contiguous()
            size = plain.numel() * plain.element_size()
            if size:  # without numpy, the bytes of a tensor can be read only through their address
                file.write((ctypes.c_char * size).from_address(plain.data_ptr()))


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """All tensors of a file, on the CPU, and its metadata. ``ValueError`` for any other kind of file."""
    if sys.byteorder != "little":
        raise ValueError("safetensors files are read on little-endian machines only")
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        length = int.from_bytes(data[:LENGTH_BYTES], "little")
        if LENGTH_BYTES + length > len(data):
            raise ValueError(f"{path} is no safetensors file, or it is incomplete")
        header = json.loads(data[LENGTH_BYTES : LENGTH_BYTES + length])
        metadata = header.pop(METADATA, {})
        start = LENGTH_BYTES + length
        return {name: _tensor(data, start, entry) for name, entry in header.items()}, metadata
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from error


def _tensor(data: mmap.mmap, start: int, entry: Mapping[str, Any]) -> torch.Tensor:
    kind, shape = _types()[entry["dtype"]], entry["shape"]
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=kind)
    flat = torch.frombuffer(data, dtype=kind, count=count, offset=start + entry["data_offsets"][0])
    return flat.clone().view(shape)
