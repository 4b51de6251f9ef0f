"""The characters of Shakespeare: where the file is found, and how it is split.

Looked for in ``--data-dir``, then in the cache folder, then downloaded; a file
with another checksum is refused, because its losses could not be compared.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError

FILE = "tinyshakespeare.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TRAINING_SHARE = 0.9
DOWNLOAD_S = 20.0
SYNTHETIC = "synthetic"
WORDS = (
    "the",
    "and",
    "you",
    "that",
    "king",
    "my",
    "lord",
    "with",
    "what",
    "this",
    "not",
    "have",
    "for",
    "his",
    "her",
    "from",
    "shall",
    "thou",
    "good",
    "now",
    "man",
    "come",
    "night",
    "speak",
    "upon",
    "heart",
    "death",
    "love",
    "day",
    "sir",
    "noble",
    "hand",
    "blood",
    "world",
    "father",
    "hear",
    "honour",
    "eyes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A text and where it comes from: ``name`` is "shakespeare", or "synthetic" for a stand-in."""

    name: str
    text: str

    @property
    def symbols(self) -> str:
        """Its distinct characters, in their order; a character's number is its place here."""
        return "".join(sorted(set(self.text)))

    def encoded(self) -> list[int]:
        number = {symbol: place for place, symbol in enumerate(self.symbols)}
        return [number[symbol] for symbol in self.text]

    @property
    def training_length(self) -> int:
        """How many characters from the beginning are for training; the rest is held out."""
        return int(TRAINING_SHARE * len(self.text))


def shakespeare(data_dir: Path | None, fetch: Callable[[], bytes] | None = None) -> Corpus:
    """The corpus of 1,115,394 characters. ``UsageError`` says what to put where when there is none."""
    if data_dir is not None:
        if not data_dir.is_dir():
            raise UsageError(f"--data-dir: there is no folder {data_dir}; give the one that holds {FILE}")
        if not (data_dir / FILE).is_file():
            raise UsageError(f"--data-dir: there is no {FILE} in {data_dir}; put the corpus there ({URL})")
        return _checked((data_dir / FILE).read_bytes(), str(data_dir / FILE))
    kept = cache_folder() / FILE
    if kept.is_file():
        return _checked(kept.read_bytes(), str(kept))
    try:
        content = (fetch or _download)()
    except OSError as error:
        raise UsageError(
            f"the text of Shakespeare is not here and cannot be downloaded ({error}); "
            f"put {URL} as {FILE} into a folder and give it with --data-dir"
        ) from None
    corpus = _checked(content, URL)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(content)
    return corpus


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/torchduet``, or ``~/.cache/torchduet``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "torchduet"


def _checked(content: bytes, where: str) -> Corpus:
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise UsageError(f"{where} is another text (SHA-256 differs); the studies need {URL}")
    return Corpus(name="shakespeare", text=content.decode("ascii"))


def _download() -> bytes:
    from urllib.request import urlopen

    with urlopen(URL, timeout=DOWNLOAD_S) as answer:
        content: bytes = answer.read()
    return content


def synthetic(characters: int = 20_000) -> Corpus:
    """Words in random order, the same each time: for ``--quick`` and tests, where no figure counts."""
    source = random.Random(0)
    text = ""
    while len(text) < characters:
        text += source.choice(WORDS) + source.choice("    ,.\n")
    return Corpus(name=SYNTHETIC, text=text[:characters])
