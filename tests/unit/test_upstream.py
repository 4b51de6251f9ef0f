"""Command lines of PyTorch's benchmarks/dynamo: every flag has an answer, and whole commands run as typed."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.loading.toml_file import read_toml
from runner.cli.actions import chosen, measure
from runner.cli.actions import why as why_action
from runner.cli.main import main
from runner.cli.parser import flags, given
from runner.cli.upstream import ANSWERS, NO_MODE, Theirs, answers, renamed, understood
from runner.plan.checks import run_config
from runner.plan.compilers import COMPILE_MODES
from runner.plan.config import RunConfig
from suites.huggingface import entries
from tests.command_line import refused

LIST = Path(__file__).parents[1] / "data" / "upstream_flags.toml"
OURS = {name for flag in flags() for name in flag.names}
ROWS = {name: row for row in answers() for name in row.names}


def hyphens(name: str) -> str:
    return name[:2] + name[2:].replace("_", "-")


def listed() -> Iterator[tuple[str, str]]:
    for group in read_toml(LIST).values():
        for answer, names in group.items():
            yield from ((name, answer) for name in names)


def answer_of(name: str) -> str:
    row = ROWS.get(hyphens(name))
    if row is None:
        return "same" if hyphens(name) in OURS else "missing"
    if row.refused:
        return "refused"
    return "accepted" if row.ours == "" and not row.special else "translated"


def test_every_flag_of_upstream_has_the_answer_that_the_list_says() -> None:
    own_answers = [(name, answer_of(name)) for name, _ in listed()]
    assert own_answers == list(listed())
    assert set(ROWS) & OURS == set()
    dropped = set(read_toml(ANSWERS)["dropped"])  # ours, of an earlier release
    assert set(ROWS) - {flag.partition("=")[0] for flag in dropped} <= {hyphens(name) for name, _ in listed()}


def typed_value(row: Theirs) -> list[str]:
    if row.choices:
        return [next(iter(row.choices))]
    samples = {"KEY=VALUE": "x=True", "DTYPE": "bfloat16", "N": "3", "FILE": "out.csv", "ARGS": "-n5"}
    return [samples.get(row.value, "some")] if row.value else []


def test_every_translated_flag_gives_a_configuration_and_a_note() -> None:
    for name, answer in listed():
        if answer not in ("translated", "accepted"):
            continue
        line = ["--training", "--amp", name, *typed_value(ROWS[hyphens(name)])]
        typed, notes = understood(line)
        assert isinstance(run_config(typed), RunConfig)
        assert notes or name == "--extra-args", name
        assert all(note.startswith(hyphens(name)) for note in notes)


def test_a_refused_flag_ends_in_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for name, answer in listed():
        if answer == "refused":
            assert main(["--training", name, "3"]) == 2
            printed = capsys.readouterr().err
            assert printed.count("\n") == 1
            assert printed.startswith(f"error: {hyphens(name)} is not supported: ")
            assert len(printed) < 240, printed


def test_every_row_says_why() -> None:
    for row in answers():
        assert row.why or row.ours, row.names
        named = {word.split("=")[0] for word in row.why.replace(",", " ").split() if word.startswith("--")}
        assert {word.strip("();:.") for word in named} <= OURS | {"--help"}, row.names


def test_upstreams_names_of_compilers_and_models_lead_to_ours() -> None:
    compilers, models = renamed()
    for name, (ours, _) in compilers.items():
        typed, notes = understood([f"--compilers=eager,{name}", "--training"])
        assert run_config(typed).compilers == ("eager", ours)
        assert notes[0].startswith(f"{name}: measured as {ours}")
    assert set(models.values()) <= set(entries())


# -- whole commands: (typed, what the configuration must have, a part of a note) -----------------------------
COMMANDS = {
    # benchmarks/dynamo/README.md, "Running Locally", at 138c80c3e52e
    "--performance --training --amp --backend=inductor --output=torchbench_training.csv": (
        "training amp inductor torchbench_training"
    ),
    "--performance --inference --bfloat16 --backend=inductor --hf-inference-mode=prefill "
    "--prompt-length=1000 --batch-size=1 --only=Qwen/Qwen3-0.6B --output=prefill_performance.csv": (
        "generate bfloat16 inductor prefill_performance"
    ),
    "--accuracy --inference --device=cpu --amp --backend=inductor --freezing --cpp-wrapper": (
        "inference amp inductor None"
    ),
    "--performance --training --float32 -dcpu --inductor --disable-cudagraphs --cold-start-latency "
    "--dynamic-shapes --dashboard --total-partitions 4 --partition-id 1": (
        "training float32 inductor_no_cudagraphs None"
    ),
    "--performance --inference --export-aot-inductor --only=resnet50": "inference float32 aot_inductor None",
    **{
        f"--training -dcpu --inductor-compile-mode={mode} --inductor --disable-cudagraphs": (
            f"training float32 {meant} None"
        )
        for mode, meant in (("max-autotune", "inductor_max_autotune_no_cudagraphs"), ("default", "inductor"))
    },
    # the README of 2022, and study E
    "-dcuda --isolate -n100 --speedup-ts": "inference float32 torchscript None",
    "-dcuda --inductor-settings --float32 -n50 --inductor": (
        "inference float32 inductor_reduce_overhead None"
    ),
    "--float32 -dcuda --training --nvfuser --speedup-dynamo-ts --use-eval-mode --isolate": (
        "training float32 dynamo_ts None"
    ),
    # its runner
    "--suites=timm_models --training --dtypes=float32 --output-dir=timm_logs": (
        "training float32 aot_eager,inductor,torchscript timm_logs"
    ),
    "--suites=timm_models --training --dtypes=float32 --compilers=aot_nvfuser --output-dir=timm_logs": (
        "training float32 aot_ts_mincut timm_logs"
    ),
    "--suites=timm_models --inference --compilers=inductor --extra-args='-k resnet --disable_cudagraphs'": (
        "inference float32 inductor_no_cudagraphs None"
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_upstreams_documents_runs_as_typed(command: str) -> None:
    words = shlex.split(command)
    typed, notes = understood(words)
    assert chosen(typed) is measure
    assert (NO_MODE in notes) is not any(word in words for word in ("--training", "--inference"))
    config = run_config(typed)
    assert config.protocol.isolate is ("--isolate" in words)
    assert config.protocol.use_eval_mode is ("--use-eval-mode" in words)
    mode, dtype, compilers, folder = COMMANDS[command].split()
    assert ([mode.value for mode in config.modes], config.dtypes) == ([mode], (dtype,))
    assert (",".join(config.compilers), str(config.output_dir)) == (compilers, folder)


@pytest.mark.parametrize(("mode", "table"), [("performance", "performance"), ("accuracy", "accuracy")])
def test_the_note_says_where_the_table_of_output_is(mode: str, table: str) -> None:
    _, notes = understood(["--training", f"--{mode}", "--output=reports/x.csv"])
    says = f"--output: --output-dir=reports/x here; the table is reports/x/*_{table}.csv"
    assert says in notes


@pytest.mark.parametrize("line", ["--visualize_logs --output-dir=R", "--output-dir R --visualize-logs"])
def test_its_runner_shows_the_folder_of_output_dir_again(line: str) -> None:
    typed, notes = understood(["--suites=torchbench", *line.split(), "--inference"])
    assert (typed, notes) == ({"visualize_logs": "R"}, ())
    typed, _ = understood(["--no-graphs", *line.split(), "--format=md,csv"])
    assert typed == {"visualize_logs": "R", "format": ["md,csv"]}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--training --quantization=int3", "--quantization: there is no value called 'int3'"),
        ("--training --amp-dtype=bfloat16", "--amp-dtype: it belongs to --amp"),
        ("--training --output", "--output: the value is missing; write --output FILE"),
        ("--training --output=.", "--output: '.' names no file; write --output-dir=."),
        ("--training --extra-args='", '--extra-args: "\'" cannot be split'),
        ("--training --only=path:/m.py,class:Net", "write --model=FILE.py:FUNCTION"),
    ],
)
def test_what_cannot_be_translated_is_said(line: str, says: str) -> None:
    with refused(says):
        understood(line.split())


@pytest.mark.parametrize(
    "line",
    [
        *(["--training", "-k", "", "--only", "a b", "-n", "-5"], ["--compare", "A", "B", "--fail-on=parity"]),
        *(["-dcpu", "-n30", "-kMLP", "--protocol", "min_rounds=3"], ["--history", "logs", "-x-y"]),
    ],
)
def test_our_own_words_are_left_as_they_are(line: list[str]) -> None:
    assert understood(line) == (given(line), ())


def test_notes_are_printed_and_the_command_is_kept_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--stats", "--only=MLP_addition", "--batch_size=4"]) == 0
    printed = capsys.readouterr()
    assert (
        printed.err
        == "note: --stats: every record counts graphs, calls and breaks; --explain adds the reasons\n"
    )
    assert "MLP_addition" in printed.out


def test_the_mode_of_inductor_holds_for_each_of_its_candidates_and_for_why() -> None:
    typed, _ = understood(["--training", "--inductor-compile-mode=max-autotune", "-dcpu"])
    (meant,) = why_action.parse({**typed, "why": True}).config.compilers
    assert meant == COMPILE_MODES["max-autotune"]
    own = {**typed, "compilers": ["inductor[freezing=True],aot_eager"]}
    assert run_config(own).compilers == (f"{meant}[freezing=True]", "aot_eager")
