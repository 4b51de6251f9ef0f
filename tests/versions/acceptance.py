"""What an environment must do, through the real command line: compact, and the same for each."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from runner.cli.exit_codes import FAILURES
from tests.versions.environments import PINNED, Environment
from tests.versions.install import ROOT

STEP_S = 2400.0  # on a machine that has much else to do
MODES = ("training", "inference")
COMPILERS = ("aot_eager", "inductor")
EXPLAINED = (*COMPILERS, "inductor[epilogue_fusion=False]", "dynamo_ts")
MAIN_JOB = ("--suites=tiny_gpt", "--training", "--dtypes=bfloat16", "--quick", "--skip-unavailable")
# those of each suite that compile fast: main_job and generation have the larger ones
MODELS = {
    "tiny_gpt": ("MLP_addition", "MLP_shakespeare_8x128", "MLP_shakespeare_16x64", "GPT_150k"),
    "huggingface": ("AlbertForMaskedLM", "BertForMaskedLM", "DistilBertForMaskedLM", "DistillGPT2"),
    "timm_models": (
        *("mixer_b16_224", "deit_base_distilled_patch16_224", "vit_base_patch16_224"),
        "vit_base_patch16_siglip_224",
    ),
}
OPERATIONS = ("matmul_s", "softmax", "layer_norm", "attention")
GENERATED = "Llama_3_2_1B"
SUITE_NAMES = (*MODELS, "ops")
PARITY_ONLY = ("--accuracy", "--scale=tiny", "--skip-unavailable", "--prepare-ahead=2")
FINE = ("pass", "skip")

Skips = list[str]


class Wrong(Exception):
    """What was expected and did not come, as one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where one environment's acceptance takes place: its own folder, which is no checkout."""

    environment: Environment
    python: Path
    pinned: Path
    folder: Path

    @property
    def torchduet(self) -> tuple[str, ...]:
        """The installed command; for a worker, the command of the pinned environment."""
        python = self.pinned if self.environment.worker else self.python
        return (str(python.with_name("torchduet")),)

    @property
    def threads(self) -> str:
        return f"--threads={self.environment.threads}"

    @property
    def parity_only(self) -> tuple[str, ...]:
        return (*PARITY_ONLY, self.threads)


Step = Callable[[Ground], Skips]


def steps(environment: Environment) -> tuple[Step, ...]:
    """What is asked of this environment, in this order."""
    if environment.worker:
        return (operations, environments, models)
    return (help_, list_, main_job, report, operations, generation, environments, clone, models)


def help_(ground: Ground) -> Skips:
    """``--help`` from the wheel."""
    if "usage: torchduet" not in run(ground, "help", [*ground.torchduet, "--help"]):
        raise Wrong("--help does not say how torchduet is used")
    return []


def list_(ground: Ground) -> Skips:
    """``--list`` and ``--list-compilers``: each suite and its models."""
    words = ["--list", "--inference", f"--suites={','.join(SUITE_NAMES)}"]
    text = run(ground, "list", [*ground.torchduet, *words])
    missing = [name for name in (*every_model(), *OPERATIONS) if f" {name} " not in text]
    if missing:
        raise Wrong(f"--list lacks {', '.join(missing)}")
    compilers = run(ground, "compilers", [*ground.torchduet, "--list-compilers"])
    if "inductor" not in compilers:
        raise Wrong("--list-compilers lacks inductor")
    return []


def main_job(ground: Ground) -> Skips:
    """The README's main job, short, from the wheel in another folder."""
    run(ground, "main", [*ground.torchduet, *MAIN_JOB, ground.threads, "--output-dir=main"])
    return skips_of(ground, "main", planned(ground.folder / "main"))


def report(ground: Ground) -> Skips:
    """The main job's report is there, and is built again byte for byte."""
    files = {
        path: path.read_bytes()
        for path in (ground.folder / "main").iterdir()
        if path.suffix in (".html", ".md", ".csv")
    }
    names = {path.name for path in files}
    if not {"report.html", "report.md"} <= names:
        raise Wrong(f"the report is missing; there are {', '.join(sorted(names))}")
    for path in files:
        path.unlink()
    run(ground, "report", [*ground.torchduet, "--visualize-logs", "main"])
    other = [
        path.name for path, content in files.items() if not path.exists() or path.read_bytes() != content
    ]
    if other:
        raise Wrong(f"--visualize-logs makes another {', '.join(other)}")
    return []


def models(ground: Ground) -> Skips:
    """Four models of each suite, both modes, both compilers, with parity."""
    return measured(ground, "models", every_model(), MODES, suites=MODELS)


def operations(ground: Ground) -> Skips:
    """Four single operations, also with a setting in brackets and by TorchScript; explained."""
    return measured(
        ground, "operations", OPERATIONS, ("inference",), "--explain", suites=("ops",), compilers=EXPLAINED
    )


def generation(ground: Ground) -> Skips:
    """One model writes a text."""
    return measured(ground, "generation", (GENERATED,), ("generate",), suites=("huggingface",))


def measured(
    ground: Ground,
    step: str,
    names: Sequence[str],
    modes: Sequence[str],
    *more: str,
    suites: Iterable[str],
    compilers: Sequence[str] = COMPILERS,
) -> Skips:
    """The compilers, with parity. In a worker's environment, the parent of the pinned one measures."""
    name = ground.environment.name if ground.environment.worker else ""
    words = [
        *ground.torchduet,
        f"--suites={','.join(suites)}",
        f"--only={','.join(names)}",
        *map("--{}".format, modes),
        f"--compilers={','.join(compilers)}",
        *more,
        *([f"--envs={name}={ground.python}"] if name else []),
        *ground.parity_only,
        f"--output-dir={step}",
    ]
    run(ground, step, words)
    candidates = [f"{compiler}@{name}" if name else compiler for compiler in compilers]
    return skips_of(ground, step, product(names, modes, candidates))


def environments(ground: Ground) -> Skips:
    """Measured beside the pinned environment, in alternation."""
    if ground.environment.name == PINNED:
        return ["--envs against the pinned environment: this is it"]
    name = ground.environment.name
    where = [f"--envs={PINNED}={ground.pinned}", f"--envs={name}={ground.python}"]
    words = "--suites=tiny_gpt --only=MLP_addition --training --quick --compilers=inductor --skip-unavailable"
    more = [ground.threads, f"--reference-env={PINNED}", "--output-dir=envs"]
    run(ground, "envs", [*ground.torchduet, *words.split(), *where, *more])
    candidates = [f"inductor@{PINNED}", f"eager@{name}", f"inductor@{name}"]
    return skips_of(ground, "envs", product(("MLP_addition",), ("training",), candidates))


def clone(ground: Ground) -> Skips:
    """The same program from the checkout, without an installation."""
    command = [str(ground.python), str(ROOT / "runner.py"), f"--output-dir={ground.folder / 'clone'}"]
    words = "--suites=tiny_gpt --inference --only=MLP_addition --compilers=aot_eager"
    run(ground, "clone", [*command, *words.split(), *ground.parity_only], cwd=ROOT)
    return skips_of(ground, "clone", [("MLP_addition", "inference", "aot_eager")])


def every_model() -> list[str]:
    return [name for names in MODELS.values() for name in names]


def run(ground: Ground, step: str, words: Sequence[str], cwd: Path | None = None) -> str:
    """What the command prints. ``Wrong`` unless it ends well; its output is kept beside its files."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(ground.folder / "caches"), "OMP_NUM_THREADS": "1"}
    variables = {"TORCHINDUCTOR_VEC_ISA_OK": "1", **os.environ, **caches}  # without: 8 s more in each process
    variables.pop("PYTHONPATH", None)
    log = ground.folder / f"{step}.log"
    try:
        with log.open("w") as output:
            code = subprocess.run(
                [*words],
                cwd=cwd or ground.folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=STEP_S,
                check=False,
            ).returncode
    except subprocess.TimeoutExpired:
        raise Wrong(f"{step}: not done after {STEP_S:g} s; see {log}") from None
    text = log.read_text(errors="replace")
    bad = _failures(ground, step)
    known = code == FAILURES and not bad and bool(records(ground.folder / step))
    if code and not known:
        raise Wrong(f"{step}: exit code {code}{bad or _last(text)}; see {log}")
    return text


def records(folder: Path) -> list[dict[str, Any]]:
    path = folder / "records.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def planned(folder: Path) -> list[tuple[str, str, str]]:
    """What the run itself meant to measure."""
    jobs = json.loads((folder / "run.json").read_text())["jobs"]
    return [
        (job["case"]["name"], job["case"]["mode"], candidate)
        for job in jobs
        for candidate in job["candidates"]
    ]


def skips_of(ground: Ground, step: str, expected: Iterable[tuple[str, str, str]]) -> Skips:
    """The reasons of skipped candidates. ``Wrong`` unless each expected one has one record that is fine."""
    wanted = [*expected]
    by_key: dict[tuple[str, str, str], dict[str, Any]] = {}
    for record in records(ground.folder / step):
        case = record["job"]["case"]
        key = (case["name"], case["mode"], record["candidate"])
        if key in by_key:
            raise Wrong(f"{step}: two records of {' '.join(key)}")
        by_key[key] = record
    if not by_key or {*wanted} != {*by_key}:
        missing = [" ".join(key) for key in wanted if key not in by_key]
        more = [" ".join(key) for key in by_key if key not in wanted]
        raise Wrong(
            f"{step}: records missing: {', '.join(missing) or 'none'}; others: {', '.join(more) or 'none'}"
        )
    bad = _failures(ground, step)
    if bad:
        raise Wrong(f"{step}{bad}")
    reasons: dict[str, list[str]] = {}
    for (model, mode, candidate), record in by_key.items():
        reason = record["failure"]["message"] if record["status"] == "skip" else _fault(ground, record)
        if reason:
            reasons.setdefault(reason, []).append(f"{model} {mode} {candidate}")
    return [f"{step}: {_some(where)}: {reason}" for reason, where in reasons.items()]


def _failures(ground: Ground, step: str) -> str:
    """What did not pass, and is no known fault of this torch, as the end of a sentence."""
    bad = [
        f"{record['job']['case']['name']} {record['job']['case']['mode']} {record['candidate']}: "
        f"{record['status']} ({(record.get('failure') or {}).get('message', '')[:200]})"
        for record in records(ground.folder / step)
        if record["status"] not in FINE and not _fault(ground, record)
    ]
    return f": {'; '.join(bad)}" if bad else ""


def _fault(ground: Ground, record: dict[str, Any]) -> str:
    """The fault of this torch that explains why the candidate fails parity; "" if it passes, or none does."""
    case, (compiler, *_) = record["job"]["case"], record["candidate"].split("@")
    failed = record["status"] == "fail_accuracy"
    return ground.environment.faults.get((case["name"], case["mode"], compiler), "") if failed else ""


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return f" ({lines[-1].strip()[:300]})" if lines else ""
