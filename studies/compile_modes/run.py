"""Study C: torch.compile's modes beside eager on published models, as two runs of the program."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.cli.actions import chosen, measure
from runner.cli.exit_codes import FAILURES, INTERRUPTED, OK
from runner.cli.parser import parsed
from runner.cli.upstream import understood
from runner.errors import UsageError
from runner.store.run_folder import new_folder
from studies.options import CompileModesOptions

ROOT = Path(__file__).resolve().parents[2]
MODES = {
    "inductor": "default",
    "inductor_reduce_overhead": "reduce-overhead",
    "inductor_max_autotune": "max-autotune",
}
"""Compiler of this project -> mode of torch.compile, in the order of the published story."""
PARTS = {
    "images": ("--suites=timm_models", "--inference", "--only=vit_base_patch16_224"),
    "text": ("--suites=huggingface", "--generate", "--only=Llama_2_7B"),
}
# in one process, a later mode would use what an earlier mode compiled
EACH = ("--isolate", "--cold-start-latency")
QUICK = {"--scale": "tiny", "--repeat": "6", "--compilers": "inductor,inductor_max_autotune"}
ON_CPU = {"images": {"--batch-size": "2"}, "text": {"--scale": "small"}}
ON_GPU = {"images": {}, "text": {"--prompt-tokens": "512", "--new-tokens": "128"}}
SWEPT = {"batch": "--batch-size", "threads": "--threads", "sequence": "--prompt-tokens"}
"""Axis of ``--sweep`` -> the flag that it replaces."""


def flags_of(part: str, options: CompileModesOptions, more: Sequence[str]) -> list[str]:
    """The command line of one run. The flags in ``more`` replace those of the study."""
    cpu = options.device == "cpu"
    values = {
        "--devices": options.device,
        "--dtypes": "float32" if cpu else "bfloat16",
        "--compilers": ",".join(MODES),
        "--scale": "full",
        "--timeout": "3600",
        "--processes": "1",
        **({"--threads": str(options.threads)} if options.threads else {}),
        **(QUICK if options.quick else (ON_CPU if cpu else ON_GPU)[part]),
    }
    theirs = understood(more)[0]
    swept = {SWEPT.get(axis.partition("=")[0]) for axis in theirs.get("sweep", ())}
    ours = [*PARTS[part], *(f"{flag}={value}" for flag, value in values.items() if flag not in swept)]
    if part == "images" and not options.quick:
        ours.append("--only=resnet152")
    return [
        *EACH,
        *(["--freezing"] if cpu else []),  # max-autotune measures kernels only for constant weights there
        *(flag for flag in ours if not theirs.keys() & understood([flag])[0].keys()),
        *more,
    ]


def run(options: CompileModesOptions, _: Sequence[str], more: Sequence[str]) -> Path:
    """Measures the parts; returns the folder. ``UsageError`` before anything is written."""
    commands = {part: flags_of(part, options, more) for part in options.parts}
    for words in commands.values():
        typed, _ = understood(words)
        if chosen(typed) is not measure:
            raise UsageError("compile-modes measures; give flags of other actions to runner.py")
        parsed(measure, typed)
    folder = new_folder(options.output_dir, "study-compile-modes")
    for part, words in commands.items():
        code = _measured([sys.executable, str(ROOT / "runner.py"), *words, f"--output-dir={folder / part}"])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code not in (OK, FAILURES):
            raise UsageError(f"compile-modes: the run of {part} ended with exit code {code}")
    return folder


def _measured(command: Sequence[str]) -> int:
    """The exit code. After Ctrl-C, ``subprocess.run`` would kill the run before it has kept its rounds."""
    with subprocess.Popen(command, start_new_session=True) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
