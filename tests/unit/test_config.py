"""Flags become a frozen configuration once; everything wrong is one sentence that names its flag."""

import shlex

import pytest

from harness.protocol import AUTO
from runner.errors import UsageError
from runner.plan.config import RunConfig
from tests.command_line import config_of_words, parsed, refused


def config(*words: str) -> RunConfig:
    return config_of_words(["--training", *words])


def test_lists_by_repetition_and_by_commas() -> None:
    read = config("--dtypes=float32,amp", "--dtypes=bfloat16", "--compilers", "eager,inductor", "-dcpu")
    assert config("--tag= a b ", "--tag=c").tags == ("a b", "c")
    assert read.dtypes == ("float32", "amp", "bfloat16")
    assert (read.compilers, read.devices) == (("eager", "inductor"), ("cpu",))


@pytest.mark.parametrize(
    ("words", "compilers", "processes"),
    [
        (["-dcuda:1"], "inductor,inductor_reduce_overhead", 1),
        (["-dcpu"], "aot_eager,inductor,torchscript", AUTO),
        (["-dcpu,cuda"], "aot_eager,inductor,torchscript", AUTO),
        (["-dxpu"], "inductor", 1),
        (["-dcuda", "--compilers=eager", "--processes=auto"], "eager", AUTO),
        (["-dcpu", "--quick"], "aot_eager,inductor,torchscript", 1),
        (["-dcpu", "--quick", "--processes=auto"], "aot_eager,inductor,torchscript", AUTO),
        (["-dcpu", "--processes=3"], "aot_eager,inductor,torchscript", 3),
        (["-dcpu", "--why"], "aot_eager,inductor,torchscript", 1),
    ],
)
def test_a_gpu_has_two_compilers_and_one_process(words: list[str], compilers: str, processes: int) -> None:
    chosen = config(*words)
    assert (",".join(chosen.compilers), chosen.protocol.processes) == (compilers, processes)


BAD = [
    ("--training --devices=cpu --energy", "--energy reads the counter of an NVIDIA GPU; leave it out"),
    ("", "--training, --inference or --generate"),
    ("--training --shapes=size=1", "--shapes: there is no axis called 'size'; choose from batch"),
    ("--training --shapes=64,128", "--shapes: '64,128' names no axis"),
    ("--training --shapes=batch=", "--shapes: '' is no list of sizes; write for example batch=16,24,32"),
    ("--training --shapes=batch=0,4", "--shapes: 0 is too small"),
    ("--training --shapes=batch=16:+-20%:50", "--shapes: '16:+-20%:50' is no list of sizes"),
    ("--training --shapes=batch=1,2,3,4,5,6,7,8,9", "--shapes: these are more than 8 sizes"),
    ("--training --shapes=batch=1,2 --sweep=threads=1,2", "--shapes has sizes of its own in one"),
    ("--training --shapes=batch=1,2 --dynamic-shapes", "--shapes compares settings of"),
    ("--generate --shapes=batch=1,2", "leave --generate, --optimizer and"),
    ("--training --shapes=batch=1,2 --optimizer=sgd", "--shapes is for a forward, or one with"),
    ("--training --suites=tiny_gtp", "did you mean tiny_gpt"),
    ("--training --suites=none.py", "no file 'none.py'"),
    ("--training --compilers=inducter", "did you mean inductor"),
    ("--training --compilers=nobody", "there is no compiler called 'nobody'; see --list-compilers, write a"),
    ("--training -n3 --protocol=min_rounds=50", "-n/--repeat=3 is less than min_rounds=50"),
    ("--training --output-dir=", "--output-dir: the value is empty"),
    ("--compare a ''", "--compare: the value is empty"),
    ("--training --envs=a=/x/python --envs=b=/x/python", "a and b are the same environment"),
    ("--training --envs=torch==2.2.2 --envs=torch==2.2.2", "two environments are called torch-2.2.2"),
    ("--training --envs=torch=2.2.2", "neither a Python nor a requirement of torch"),
    ("--training '--envs=a=torch==2.2.2; rm -rf'", "neither a Python nor a requirement of torch"),
    ("--training --envs=old=", "--envs: 'old=' names no environment"),
    ("--training '--envs=new=torch>=2.2'", "which version of torch; write torch==2.2.2"),
    ("--training --envs=/usr/bin/python3", "give /usr/bin/python3 a name; write old=/usr/bin/python3"),
    ("--training '--envs=a b=torch==2.2.2'", "--envs: 'a b' cannot be the name"),
    ("--training --envs=a=/x/python --reference-env=b", "--reference-env: there is no environment called"),
    ("--training --reference-env=b", "--reference-env names one of --envs"),
    ("--training --format=md,pdf", "--format: there is no format called 'pdf'; choose from bencher, console"),
    ("--training --seed=99999999999999999999", "--seed"),
    ("--training --timeout=inf", "--timeout"),
    ("--training --precision=2", "2% or 0.02"),
    ("--training --accuracy --performance", "--accuracy and --performance"),
    ("--training --devices=mps", "there is no device called 'mps'"),
    ("--training --dtypes=,", "--dtypes"),
    ("--training --protocol=max_rounds", "not written as key=value"),
    ("--training --protocol=max_round=3", "did you mean max_rounds"),
    ("--training --protocol=max_rounds=3", "max_rounds=3 is less than min_rounds=10"),
    ("--training --protocol=max_rounds=2.5", "max_rounds: '2.5' is not a whole number"),
    ("--training --protocol=alpha=nan", "a share between 0 and 1"),
    ("--training --batch-size=2 --batch-size=4", "--batch-size: given twice, as '2' and '4'"),
    ("--training '--compilers=inductr[freezing=True]'", "called 'inductr'; did you mean inductor"),
    ("--training '--compilers=inductor[freezing]'", "'freezing' is not written as key=value"),
    ("--training '--compilers=inductor[a=1,a=2]'", "has a more than once"),
    ("--training --devices=cuda,cuda:0", "-d/--devices: cuda and cuda:0 are the same device"),
    ("--training --ray-address=auto", "--ray-address is for --executor=ray"),
    ("--training --executor=ray --prepare-ahead=2", "--prepare-ahead works on this machine only"),
    ("--training --total-partitions=3", "needs --partition-id: say which part to run, 0 to 2"),
    ("--training --partition-id=0", "--partition-id needs --total-partitions"),
    ("--training --total-partitions=3 --partition-id=3", "there is no part 3 of 3; choose from 0 to 2"),
    ("--training --sweep=batch", "--sweep: 'batch' has no values; give values such as"),
    ("--training --sweep=size=1", "--sweep: there is no axis called 'size'; choose from batch, sequence"),
    ("--training --sweep=batch=0", "--sweep: 0 is too small"),
    ("--training --sweep=batch=1,x", "--sweep: 'x' is not a whole number"),
    ("--training --sweep=batch=1:500:+1", "--sweep: 'batch=1:500:+1' has more than 64 values"),
    ("--why --training --compilers=inductor,aot_eager", "--why explains one compiler"),
    ("--why --training --compilers=eager", "--why: eager has no settings to test"),
    ("--tune --training --accuracy", "--tune needs times"),
    ("--why --training --isolate", "--why compares settings in the same rounds of a process; leave"),
    ("--resume R --seed=3", "--seed does nothing with --resume; leave it out"),
    ("--training --model mine", "--model: 'mine' is not written as package.module:function"),
    ("--training --pretrained --scale=tiny", "--pretrained: published weights need --scale=full"),
    ("--training --batch-size=2 --batch-size-file=x", "exclude each other"),
    *((f"--training '--tag={tag}'", "--tag: ") for tag in ("", " ", "a\nb", "x" * 100)),
    ("--training --batch-size-file=no_such", "--batch-size-file: no_such cannot be read"),
    ("--training --freezing", "--freezing makes the weights constants"),
    ("--training --new-tokens=8", "--new-tokens is for --generate; leave it out, or add --generate"),
    ("--training --dynamic-shapes --dynamic-batch-only", "--dynamic-shapes and --dynamic-batch-only exclude"),
    ("--inference --use-eval-mode", "--use-eval-mode is for training; leave it out, or add --training"),
    ("--training --localize --envs=a=torch==2.2.2", "--localize works in one environment; leave --envs out"),
    ("--inference --trajectory=50", "--trajectory trains; leave it out, or add --training"),
    ("--training --trajectory=50 --shapes=batch=1,2", "--trajectory trains in one environment, at one size;"),
    ("--training --trajectory=50 --dtypes=float16", "--trajectory: in float16, small gradients are zero"),
    ("--training --trajectory=5", "--trajectory: 5 is too small; give a whole number from 20 up"),
    ("--training --learning-rate=1e-2", "--learning-rate is that of --trajectory; leave it out, or add"),
    ("--training --trajectory=50 --learning-rate=0", "--learning-rate: '0' is not a rate above 0"),
    ("--inference --optimizer=adamw", "--optimizer ends a training step; leave it out, or add"),
    ("--training --optimizer=adamw --dtypes=float16", "--optimizer: in float16, small gradients"),
    ("--inference --loss=sum", "--loss is for training; leave it out, or add --training"),
    ("--inference --whole-step", "--whole-step compiles a training step; leave it out, or add"),
    ("--training --optimizer=lion", "--optimizer: there is no optimizer called 'lion'"),
    ("--training --optimizer=nowhere.py:make", "--optimizer: there is no file 'nowhere.py'"),
    ("--training --sweep=batch=1,2 --batch-size=4", "--sweep sets the batch size; leave --batch"),
    ("--training --sweep=threads=1 --threads=1", "--sweep sets the threads; leave -t/--threads out"),
    ("--generate --sweep=sequence=8 --prompt-tokens=8", "--sweep sets the prompt; leave --prompt"),
    ("--training --sweep=batch=1 --sweep=batch=2", "--sweep: name an axis once, with all its values"),
    ("--training --zzzzzz=3", "--zzzzzz: there is no such flag; see --help for the flags"),
    ("--training --dropout=keep", "--dropout=keep is for models of your own; in the models of tiny_gpt,"),
    ("--training --performance --localize", "--localize needs the parity check; leave --performance out"),
    ("--training --performance --numerics", "--numerics needs the calls of the parity check; leave --perfor"),
    ("--training --accuracy --export-profiler-trace", "needs timed steps; leave --accuracy out"),
    ("--compare a", "name two runs, or more: BASE [BASE ...] NEW"),
    ("--compare a a", "is named twice; name two runs"),
    ("--compare a b --format png", "--format: a comparison of runs has no png"),
    ("--compare a b --format md,json", "one format at a time is printed"),
    ("--fail-on parity --training", "--fail-on: parity needs two runs (--compare)"),
    ("--training --fail-on=fast", "--fail-on: there is no kind of change called 'fast'; choose from"),
    ("--training --fail-on=parity:5%", "--fail-on: parity has no threshold; write just parity"),
    ("--training --fail-on=regression:", "--fail-on: '' is not a share"),
    ("--training --fail-on=compile:10% --compile-runs=2", "--fail-on: compile compares environments of a"),
    ("--training --fail-on=speedup", "--fail-on: '' is not a speedup; write for example speedup:1.4"),
    ("--training --fail-on=speedup:1 --accuracy", "speedup is measured in timed steps; leave --accuracy"),
    ("--fail-on parity --history", "--fail-on is for --compare BASE NEW"),
    ("--training --confirm", "--confirm: no gate can fail; add --fail-on, or leave it out"),
    ("--compare a b --fail-on=parity --confirm", "--confirm is for runs that measure; leave it out"),
    ("--resume R --confirm", "--confirm does nothing with --resume; leave it out"),
    (
        "--training --fail-on=time --accuracy --envs=a=torch==2.2 --envs=b=torch==2.3",
        "--fail-on: time is measured",
    ),
    ("--compare a b --history", "--compare and --history exclude each other"),
]


@pytest.mark.parametrize(("words", "says"), BAD)
def test_bad_input_names_what_is_wrong(words: str, says: str) -> None:
    with refused(says):
        parsed(shlex.split(words))


IDLE = [
    ("--training --model=my.own:make --scale=tiny", "--scale does nothing with models of your own alone"),
    ("--training --model=mine.models:make --suites=ops --scale=tiny", ""),
    ("--training --accuracy -n5", "-n/--repeat does nothing with --accuracy"),
    ("--training --accuracy --quick --precision=5%", "--ci-width does nothing with --accuracy"),
    ("--training --accuracy --processes=3", "--processes does nothing with --accuracy"),
    ("--training --accuracy --allocator=system", ""),
    ("--training --accuracy --quick", ""),
    ("--training --accuracy --shapes=batch=1,2 --processes=3", ""),
    ("--training --performance -n5 --processes=3", ""),
    ("--training --compilers=eager --shapes=batch=1,2", "--shapes does nothing with eager alone"),
    ("--training --compilers=eager --cold-start-latency", "--compile-runs does nothing with eager alone"),
    ("--training --compilers=eager,eager --start-up=1", "--start-up does nothing with eager alone"),
    ("--training --compilers=eager,inductor --start-up=1", ""),
]


@pytest.mark.parametrize(("words", "says"), IDLE)
def test_a_flag_that_does_nothing_is_named(words: str, says: str) -> None:
    _, request = parsed(shlex.split(f"{words} -dcpu"))
    assert " and ".join(request.notes) == says


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(UsageError) as raised:
        config("-k", "a" * 90_000 + "(")
    said = str(raised.value)
    assert said.startswith("-k/--filter: 'aaaa")
    assert "missing ), unterminated subpattern" in said
    assert len(said) < 1500
