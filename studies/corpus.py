"""The text of Shakespeare: where its file is, and how it is split.

The file is searched in ``--data-dir``, else in the cache folder, else it is downloaded.
A file with another checksum is an error, because losses on other texts cannot be compared.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import UsageError
from runner.plan.interpreter import cache_root

if TYPE_CHECKING:
    from torch import Tensor

FILE = "tinyshakespeare.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TRAINING_SHARE = 0.9
SIZES = {"characters": 1_115_394, "distinct": 65, "held_out": 111_540}  # of the text with this checksum
DOWNLOAD_S = 20.0
SYNTHETIC_LENGTH = 20_000
WORDS = (
    "the and you that king my lord with what this not have for his her from shall thou good now man come "
    "night speak upon heart death love day sir noble hand blood world father hear honor eyes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A text. ``name`` is "shakespeare", or "synthetic" for generated text."""

    name: str
    text: str

    @property
    def symbols(self) -> str:
        """The distinct characters, sorted. The token of a character is its index here."""
        return "".join(sorted(set(self.text)))

    def encoded(self) -> list[int]:
        number = {symbol: place for place, symbol in enumerate(self.symbols)}
        return [number[symbol] for symbol in self.text]

    @property
    def training_length(self) -> int:
        """The number of characters for training, from the beginning. The rest is held out."""
        return int(TRAINING_SHARE * len(self.text))

    @property
    def sizes(self) -> dict[str, int]:
        """As printed in reports. Those of Shakespeare are ``SIZES``."""
        held_out = len(self.text) - self.training_length
        return {"characters": len(self.text), "distinct": len(self.symbols), "held_out": held_out}


def windows(tokens: Tensor, starts: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, each (windows, block). A target is the character after its input."""
    cut = tokens.unfold(0, block + 1, 1)[starts]
    return cut[:, :-1].contiguous(), cut[:, 1:].contiguous()


def seeded_model(case: str, seed: int, config: Mapping[str, Any] | None = None) -> Any:
    """The model of a case of suite tiny_gpt, or of another configuration, with weights of this seed."""
    from harness.timing.step import seed_everything
    from suites.tiny_gpt import entries, make_model

    seed_everything(seed)
    return make_model(entries()[case].implementation, config or entries()[case].config)


def download() -> bytes:
    from urllib.request import urlopen

    with urlopen(URL, timeout=DOWNLOAD_S) as answer:
        return bytes(answer.read())


def shakespeare(data_dir: Path | None, fetch: Callable[[], bytes] = download) -> Corpus:
    """The corpus of 1,115,394 characters. The ``UsageError`` says where to put a missing file."""
    kept = (data_dir or cache_root()) / FILE
    if kept.is_file():
        return _checked(kept.read_bytes(), str(kept))
    if data_dir is not None:
        if not data_dir.is_dir():
            raise UsageError(f"--data-dir: there is no folder {data_dir}; give the one that holds {FILE}")
        raise UsageError(f"--data-dir: there is no {FILE} in {data_dir}; put the corpus there ({URL})")
    try:
        content = fetch()
    except OSError as error:
        raise UsageError(
            f"the text of Shakespeare is not on this machine and cannot be downloaded ({error}); "
            f"save {URL} as {FILE} and give its folder with --data-dir"
        ) from None
    corpus = _checked(content, URL)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(content)
    return corpus


def _checked(content: bytes, where: str) -> Corpus:
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise UsageError(f"{where} has another SHA-256 checksum; the studies need {URL}")
    return Corpus(name="shakespeare", text=content.decode("ascii"))


def synthetic() -> Corpus:
    """Words in a fixed random order, for ``--quick`` and tests, whose numbers have no meaning."""
    source = random.Random(0)
    text = ""
    while len(text) < SYNTHETIC_LENGTH:
        text += source.choice(WORDS.split()) + source.choice("    ,.\n")
    return Corpus(name="synthetic", text=text[:SYNTHETIC_LENGTH])
