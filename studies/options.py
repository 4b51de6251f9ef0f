"""What a study is asked to do: flags in, frozen options out. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.environments.spec import Asked, environments_asked
from runner.errors import UsageError, unknown
from runner.flag_types import count
from studies.published import MODES, PRECISIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTimeOptions:
    """Study A. Steps and batch are None for "what suits the device"."""

    device: str
    precisions: tuple[str, ...]
    modes: tuple[str, ...]
    native: bool
    steps: int | None
    batch: int | None
    block: int | None
    seeds: int | None
    chunk: int
    every: int | None
    learning_rate: float
    threads: int | None
    data_dir: Path | None
    output_dir: Path | None
    quick: bool
    environments: tuple[Asked, ...] = ()
    records_only: bool = False


def words(flag: str, kind: str, known: Sequence[str]) -> type[argparse.Action]:
    """An action for comma-separated words that must be known."""

    class Words(argparse.Action):
        def __call__(
            self,
            parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse's signature
            namespace: argparse.Namespace,
            values: object,
            option_string: str | None = None,  # noqa: ARG002
        ) -> None:
            given = tuple(dict.fromkeys(word for word in str(values).split(",") if word))
            for word in given:
                if word not in known:
                    raise unknown(flag, word, kind, known)
            if not given:
                raise UsageError(f"{flag}: name at least one of {', '.join(known)}")
            setattr(namespace, self.dest, given)

    return Words


def rate(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UsageError(f"{flag}: {text!r} is not a learning rate; give a number between 0 and 1, as 1e-3")
    return value


def add_common(parser: argparse.ArgumentParser, *, text: bool = True) -> None:
    """What all studies have; ``text``: the study reads Shakespeare."""
    parser.add_argument("--device", default=None, help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--threads", type=count("--threads"), help="of the processor (default: torch's)")
    if text:
        parser.add_argument(
            "--data-dir",
            type=Path,
            help="folder that holds tinyshakespeare.txt (default: the cache, or a download)",
        )
    parser.add_argument("--output-dir", type=Path, help="a new folder for the run (default: under logs/)")
    parser.add_argument("--quick", action="store_true", help="a minute or two: shows that everything works")


def add_training_time(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "--precisions",
        action=words("--precisions", "precision", PRECISIONS),
        default=None,
        help=f"comma-separated, of {', '.join(PRECISIONS)} (default: those that the device has)",
    )
    parser.add_argument(
        "--modes",
        action=words("--modes", "mode", MODES),
        default=MODES,
        help=f"comma-separated, of {', '.join(MODES)} (default: all)",
    )
    parser.add_argument(
        "--native",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the same training loop in C++ on torch's own libtorch, built with the system's compiler "
        "(default: yes, but not with --quick)",
    )
    parser.add_argument("--steps", type=count("--steps"), help="training steps (default: 300 on a CPU, 5000)")
    parser.add_argument("--batch-size", type=count("--batch-size"), help="windows in a step (default: 8, 64)")
    parser.add_argument(
        "--block-size", type=count("--block-size"), help="characters in a window (default: 256)"
    )
    parser.add_argument("--seeds", type=count("--seeds"), help="whole training runs of each (default: 3)")
    parser.add_argument(
        "--chunk",
        type=count("--chunk"),
        default=20,
        help="steps before the next variant's turn (default: 20)",
    )
    parser.add_argument(
        "--evaluate-every", type=count("--evaluate-every"), help="steps (default: a tenth of them)"
    )
    parser.add_argument("--learning-rate", default="1e-3", help="AdamW's (default: 1e-3)")
    parser.add_argument(
        "--envs",
        action="append",
        metavar="NAME=PYTHON",
        help="train in each of these environments, one after the other: interpreters, or requirements such "
        "as torch==2.2.2 (may be repeated)",
    )
    parser.add_argument(
        "--records-only",
        action="store_true",
        help="no report: for an interpreter that has torch alone; studies report makes it later",
    )


def training_time_options(given: argparse.Namespace) -> TrainingTimeOptions:
    """``UsageError`` for anything that cannot be meant."""
    device = device_of(given.device)
    precisions = given.precisions or usable_precisions(device)
    check_precisions("--precisions", precisions, device)
    if "eager" not in given.modes:
        raise UsageError("--modes: eager is what the others are compared with; name it too")
    if "float32" not in precisions:
        raise UsageError("--precisions: float32 is the 1 of all ratios; name it too")
    quick = bool(given.quick)
    return TrainingTimeOptions(
        device=device,
        precisions=tuple(name for name in PRECISIONS if name in precisions),
        modes=tuple(name for name in MODES if name in given.modes),
        native=not quick if given.native is None else given.native,
        steps=given.steps,
        batch=given.batch_size,
        block=given.block_size,
        seeds=given.seeds,
        chunk=given.chunk,
        every=given.evaluate_every,
        learning_rate=rate("--learning-rate", given.learning_rate),
        threads=given.threads,
        data_dir=given.data_dir,
        output_dir=given.output_dir,
        quick=quick,
        environments=environments_asked(given.envs, None),
        records_only=given.records_only,
    )


def check_precisions(flag: str, names: Sequence[str], device: str) -> None:
    """``UsageError`` for one that the device does not have."""
    for name in names:
        if "tf32" in name and device == "cpu":
            raise UsageError(f"{flag}: {name} exists on CUDA only; with --device=cpu leave it out")


def usable_precisions(device: str) -> tuple[str, ...]:
    return PRECISIONS if device == "cuda" else tuple(name for name in PRECISIONS if "tf32" not in name)


def device_of(given: str | None) -> str:
    """The device asked for, or the best there is. ``UsageError`` when it is not there."""
    if given not in (None, "cpu", "cuda"):
        raise unknown("--device", str(given), "device", ("cpu", "cuda"))
    if given == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if given == "cuda":
        raise UsageError("--device: there is no CUDA device here that torch can use; use --device=cpu")
    return "cpu"
