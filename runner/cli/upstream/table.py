"""Every flag of ``benchmarks/dynamo`` that is not a flag of ours, one row each.

The flags are those of its suite scripts and of its ``runner.py``, from the first published form (2022) to
the present one; ``tests/data/upstream_flags.toml`` lists them with their source. A flag with the same name
here needs no row, and ``--some_flag`` is read as ``--some-flag``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """One flag of upstream.

    ``ours``: the words that replace it, with "{}" for its value; (): nothing needs to be typed here; None:
    the flag is refused with ``why``. ``choices``: the replacement for each value, if it differs by value.
    ``drops``: flags that the replacement makes obsolete. ``special``: the key of a function of
    ``runner.cli.upstream.words``, for what words cannot say.
    """

    names: tuple[str, ...]
    why: str
    ours: tuple[str, ...] | None = None
    value: str = ""  # metavar; "": a switch
    choices: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    drops: tuple[str, ...] = ()
    special: str = ""

    @property
    def refused(self) -> bool:
        return self.ours is None and not self.choices and not self.special


def _names(text: str) -> tuple[tuple[str, ...], str]:
    """``"-f --fast=N"`` -> (("-f", "--fast"), "N")"""
    words, _, value = text.partition("=")
    return tuple(words.split()), value


def _as(theirs: str, ours: str, why: str = "", **more: object) -> Theirs:
    """A flag with another name here."""
    names, value = _names(theirs)
    return Theirs(names=names, value=value, ours=tuple(ours.split()), why=why, **more)  # type: ignore[arg-type]


def _on(theirs: str, why: str) -> Theirs:
    """A flag that needs no counterpart: accepted with a note."""
    names, value = _names(theirs)
    return Theirs(names=names, value=value, ours=(), why=why)


def _no(theirs: str, why: str) -> Theirs:
    """A flag without counterpart: refused with a sentence."""
    names, value = _names(theirs)
    return Theirs(names=names, value=value, why=why)


def _special(theirs: str, special: str, why: str) -> Theirs:
    names, value = _names(theirs)
    return Theirs(names=names, value=value, special=special, why=why)


_QUANTIZATIONS = MappingProxyType(
    {
        "int8dynamic": ("--compilers=torchao_int8_dynamic",),
        "int8weightonly": ("--compilers=torchao_int8_weight_only",),
        "noquant": ("--compilers=inductor",),
        "int4weightonly": None,
    }
)
_LLM_MODES = MappingProxyType(dict.fromkeys(("generate", "prefill", "decode"), ("--generate",)))
_DISTRIBUTED = "a job has one device, so distributed models are not measured; several devices share a plan"
_DASHBOARD = "nothing is uploaded; docs/CI.md shows how a workflow posts a report; --format=hud is the JSON"
_LOGS = "TORCH_LOGS={} before the command prints it to cases/<job>/output.log of the run"

TABLE = (
    # -- what to measure
    _special("--exclude-exact=NAME", "exclude_exact", "--exclude=^NAME$ here"),
    _as("-f --fast", "--quick", "a few models, few rounds"),
    _no("--part=PART", "parts are no cases here; --model=FILE.py:FUNCTION takes a part as a model"),
    _on("--randomize-input", "inputs are always random, drawn from --seed, and the same for all candidates"),
    _no(
        "--channels-last",
        "there is no such switch; --model=FILE.py:FUNCTION takes a model and inputs in any memory format",
    ),
    _no(
        "--enable-activation-checkpointing",
        "there is no such switch; --model=FILE.py:FUNCTION takes a model that uses torch.utils.checkpoint",
    ),
    _as("--prompt-length=N", "--generate --prompt-tokens={}", drops=("--inference",)),
    Theirs(
        names=("--hf-inference-mode",),
        value="MODE",
        choices=_LLM_MODES,
        drops=("--inference",),
        why="one generation times prefill and decode, each apart",
    ),
    _no(
        "--find-batch-sizes",
        "batch sizes are not searched; a batch that does not fit is halved for eager and candidates alike "
        "(--fixed-batch turns this off), or give --batch-size",
    ),
    # -- conditions
    _special("--device-index=N", "device_index", "--devices=cuda:N here"),
    _special("--amp-dtype=DTYPE", "amp_dtype", "--dtypes=amp_bfloat16 or amp_float16 here"),
    _no(
        "--per-process-memory-fraction --per_process_memory_fraction=SHARE",
        "there is no limit of GPU memory here; --max-memory=GB limits the host's memory",
    ),
    _no(
        "--deterministic",
        "deterministic kernels would not be what is timed; eager's own variation is measured instead, "
        "and parity allows for it",
    ),
    _no("--batch-invariant", "batch invariance is not checked; compare two --batch-size runs of your own"),
    _no("--ddp", _DISTRIBUTED),
    _no("--fsdp", _DISTRIBUTED),
    _no("--multiprocess", f"{_DISTRIBUTED} (--devices=cuda:0,cuda:1)"),
    _no("--optimize-ddp-mode=MODE", _DISTRIBUTED),
    _no("--distributed-master-port=PORT", _DISTRIBUTED),
    _no("--enable-cpu-launcher", "put numactl or taskset before the command, and use --threads=N"),
    _no("--cpu-launcher-args=ARGS", "put numactl or taskset before the command, and use --threads=N"),
    _no("--trace-on-xla", "XLA devices are not supported; see --devices in --help"),
    _no("--xla", "XLA devices are not supported; see --devices in --help"),
    _no("--xla-tolerance=X", "XLA devices are not supported; see --devices in --help"),
    # -- compilers
    _special("--disable-cudagraphs", "disable_cudagraphs", "measured as inductor_no_cudagraphs"),
    _special("--compiled-autograd", "compiled_autograd", "measured as inductor_compiled_autograd"),
    _special("--inductor-settings", "inductor_settings", "inductor is measured as inductor_reduce_overhead"),
    _as("--export", "--compilers=export"),
    _as("--overhead", "--compilers=dynamo_eager", "Dynamo's cost, with eager's kernels"),
    _as("--coverage", "--compilers=dynamo_eager --explain", "every record counts graphs, calls and breaks"),
    _as("--torchscript-jit-trace", "--compilers=torchscript"),
    _as("--speedup-fx2trt", "--compilers=tensorrt"),
    _as("--speedup-fx2trt-fp16", "--compilers=tensorrt --float16"),
    _as("--speedup-trt", "--compilers=tensorrt"),
    _as("--speedup-onnx", "--compilers=onnxrt"),
    _as("--prims-nvfuser", "--compilers=thunder", "NVFuser lives on in Thunder"),
    _as("--inductor-dynamic", "--compilers=inductor --dynamic-shapes"),
    _as("--accuracy-aot-nop", "--compilers=aot_eager --accuracy"),
    _as("--accuracy-aot-ts", "--compilers=aot_ts --accuracy"),
    _as("--accuracy-ts", "--compilers=torchscript --accuracy"),
    _as("--nops", "--compilers=dynamo_eager"),
    Theirs(
        names=("--quantization",),
        value="KIND",
        choices=_QUANTIZATIONS,
        why="here a compiler, compared with plain eager; there is no int4weightonly (see --list-compilers)",
    ),
    _no("--optimus=KIND", "Optimus is not a compiler here; its passes are settings of --inductor-config"),
    _no("--aot-precompile", "there is no such compiler; --compilers=aot_inductor compiles ahead of time"),
    _no("--export-nativert", "there is no such compiler; --compilers=export or aot_inductor are the nearest"),
    _no("--caching-precompile", "there is no such cache; --warm-start-latency measures with filled caches"),
    _no("--python-key", "this tracer is gone from torch; --compilers=aot_eager traces with AOTAutograd"),
    # -- options of the compilers
    _as("-c=KEY=VALUE", "--inductor-config={}"),
    _as("--disable-split-reductions", "--inductor-config=split_reductions=False"),
    _as("--disable-persistent-reductions", "--inductor-config=triton.persistent_reductions=False"),
    _as("--disable-divisible-by-16", "--inductor-config=triton.divisible_by_16=False"),
    _as("--cpp-wrapper", "--inductor-config=cpp_wrapper=True"),
    _no("--unbacked-batch-only", "unbacked sizes are not offered; --dynamic-batch-only marks the batch"),
    _no("--compare-backed-unbacked", "unbacked sizes are not offered; --dynamic-batch-only marks the batch"),
    _no("--propagate-real-tensors", "settings of Dynamo are not offered; --inductor-config sets inductor's"),
    _no("--specialize-int", "settings of Dynamo are not offered; --inductor-config sets inductor's"),
    _on("--suppress-errors", "an error costs one candidate; the run continues, and the record has the error"),
    # -- how to measure
    _on("--iterations-per-run=N", "the steps of a sample are chosen so that the clock resolves them"),
    _on("--iterations=N", "parity checks the first call of the compiled model and a settled call"),
    _as("--skip-accuracy-check", "--performance"),
    _no("--skip-fp64-check", "parity always uses an fp64 run where there is one; --performance skips parity"),
    _as("--tolerance", "--accuracy", "each record has the error of its worst tensor beside the limit"),
    _on("--cosine", "parity compares with an fp64 run; --parity=field is the published rule"),
    _on("--collect-outputs", "parity always compares outputs, loss and gradients"),
    _on("--no-translation-validation", "it is never on here"),
    _on("--ci", "the number of rounds follows from the intervals; --quick and -n N make runs shorter"),
    _on("--dashboard", "all numbers are always kept"),
    _on("--use-warm-peak-memory", "peak memory is always that of a settled step"),
    # -- what else to find out
    _as("--print-graph-breaks", "--explain"),
    _as("--log-graph-breaks", "--explain"),
    _as("--recompile-profiler", "--explain"),
    _on("--stats", "every record counts graphs, calls and breaks; --explain adds the reasons"),
    _on("--generate-aot-autograd-stats", "every record counts graphs, calls and breaks"),
    _on("--timing", "every record has the times of the compiler's phases"),
    _on("--print-compilation-time", "every table has the compilation time"),
    _on("--print-memory", "every table has the peak memory"),
    _on("--print-dataframe-summary", "the record has the errors; torchduet.load(RUN) gives DataFrames"),
    _on("--dump-raw-metrics", "records.jsonl always has every sample"),
    _on("--progress", "a progress line is always shown"),
    _on("-v --verbose", "cases/<job>/output.log of the run has everything that a model printed"),
    _on("-q --quiet", "what a model prints goes to cases/<job>/output.log of the run"),
    _as("--profile-details", "--export-profiler-trace"),
    _on("--profiler-trace-name=NAME", "traces have fixed names in the folder of the run"),
    _no("--export-perfdoctor", "this uploads to a private service; --export-profiler-trace writes the trace"),
    _no("--profile-dynamo-cache-lookup", "guards are not timed apart; --export-profiler-trace shows them"),
    _no("--snapshot-memory", "there are no memory snapshots; records have the peaks of eager and candidates"),
    _no("--minify", "--localize finds the stage of the compiler and the smallest submodule that go wrong"),
    _no("--print-fx", _LOGS.format("graph_code")),
    _no("--print-aten-ops", _LOGS.format("aot_graphs")),
    _no("--log-operator-inputs", "operator inputs are not logged; --export-profiler-trace lists the kernels"),
    _no("--log-conv-args", "operator inputs are not logged; --export-profiler-trace lists the kernels"),
    # -- output, and other runs
    _special("--output=FILE", "output", "--output-dir=FILE without .csv here"),
    _as("--output-directory=DIR", "--output-dir={}"),
    _on("--disable-output", "a run always keeps its records, in logs/ or --output-dir"),
    _no("--retain-output", "--resume=DIR continues a run, and --merge joins finished ones"),
    _no("--keep-output-dir", "--resume=DIR continues a run, and --merge joins finished ones"),
    _no("--baseline=FILE", "measure first, then compare both: --compare FILE RUN"),
    _no("--diff-branch=BRANCH", "--envs old=PYTHON --envs new=PYTHON measures two builds in alternation"),
    _no("--save-model-outputs-to=FILE", "--envs compares the results of two environments in one run"),
    _no("--compare-model-outputs-with=FILE", "--envs compares the results of two environments in one run"),
    # -- its runner
    _on("--run", "a command without another action always measures and reports"),
    _on("--flag-compilers=NAME", "warnings cover every compiler of the run"),
    _on("--include-slowdowns", "averages always include slowdowns"),
    _on("--no-cold-start-latency", "caches are warm unless --cold-start-latency is given"),
    _on("--no-detect-regressions", "runs are compared only by --compare and --history"),
    _on("--no-update-archive", "there is no archive; --history lists the runs of a folder"),
    _on("--no-gh-comment", "nothing is posted"),
    _on("--update-dashboard-test", "nothing is uploaded or posted"),
    _as("--no-graphs", "--format=csv,md,json,html,console"),
    _as("--base-sha=SHA", "--tag={}"),
    _as("--archive-name=NAME", "--tag={}"),
    _on("--extra-args=ARGS", "its words are read as part of the command line"),
    _no("--update-dashboard", _DASHBOARD),
    _no("--dashboard-image-uploader=COMMAND", _DASHBOARD),
    _no("--dashboard-archive-path=DIR", _DASHBOARD),
    _no("--dashboard-gh-cli-path=PATH", _DASHBOARD),
)

COMPILERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ts_nnc": ("torchscript", "TorchScript with its own fuser"),
        "ts_nvfuser": ("torchscript", "NVFuser left TorchScript with PyTorch 2.2; thunder has it"),
        "aot_nnc": ("aot_ts_mincut", "TorchScript on AOTAutograd's graphs"),
        "aot_nvfuser": ("aot_ts_mincut", "NVFuser left TorchScript with PyTorch 2.2; thunder has it"),
        "aot_ts_nvfuser": ("aot_ts_mincut", "NVFuser left TorchScript with PyTorch 2.2; thunder has it"),
        "nvprims_nvfuser": ("thunder", "NVFuser lives on in Thunder"),
        "prims_nvfuser": ("thunder", "NVFuser lives on in Thunder"),
        "aot_cudagraphs": ("cudagraphs", "its present name"),
        "eager_cudagraphs": ("cudagraphs", "its present name"),
        "cudagraphs_ts": ("cudagraphs", "TorchScript under CUDA graphs is gone from torch"),
        "nnc_cudagraphs": ("cudagraphs", "TorchScript under CUDA graphs is gone from torch"),
        "nvfuser_cudagraphs": ("cudagraphs", "TorchScript under CUDA graphs is gone from torch"),
        "ts_nvfuser_cudagraphs": ("cudagraphs", "TorchScript under CUDA graphs is gone from torch"),
        "inductor_cudagraphs": ("inductor_reduce_overhead", "inductor with CUDA graphs"),
        "trt": ("tensorrt", "its present name"),
        "fx2trt": ("tensorrt", "its present name"),
        "torchscript-onnx": ("onnxrt", "ONNX Runtime on an exported graph"),
        "dynamo-onnx": ("onnxrt", "ONNX Runtime on an exported graph"),
    }
)
"""Names of compilers in upstream's runner and in ``--backend``: ours, and why."""

MODELS: Mapping[str, str] = MappingProxyType(
    {
        "meta-llama/Llama-3.2-1B": "Llama_3_2_1B",
        "google/gemma-2-2b": "Gemma2_2B",
        "Qwen/Qwen3-0.6B": "Qwen3_0_6B",
        "openai/whisper-tiny": "Whisper_tiny",
    }
)
"""Models that upstream calls by their name on the hub."""
