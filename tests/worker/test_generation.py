"""Generation as a workload: the tokens, the cache, the compiled graphs, and a session over it."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from harness.schema import BASELINE, Mode, Protocol, Setting, Status
from harness.timing.step import Variant, seed_everything
from harness.workload import Workload
from suites.models.generation import causal_workload
from tests.factories import Patch, known, make_job
from tests.suites import generators
from tests.worker.planted import Trial
from tests.worker.test_session import opened

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
]

MODELS = ("llama", "gemma2", "gpt2", "whisper")
NEW = 8
CACHES = ("self_attention_cache", "cross_attention_cache")  # Whisper's; the others have one


def workload(name: str, new_tokens: int = NEW) -> Workload:
    seed_everything(7)
    sizes = {"batch_size": 2, "prompt_tokens": generators.PROMPT, "new_tokens": new_tokens}
    return generators.build(make_job(name, mode=Mode.GENERATE, **sizes).case)


def variant(of: Workload, dtype: str = "float32", *, exact: bool = False) -> Variant:
    return Trial(workload=of, dtype=dtype, mode=Mode.GENERATE).variant(exact=exact)


def generated(subject: Variant) -> dict[str, torch.Tensor]:
    results: dict[str, torch.Tensor] = subject.step()[1]
    return results


def by_transformers(of: Workload) -> torch.Tensor:
    """What ``generate`` of transformers chooses, with a cache that grows."""
    import transformers

    library: Any = transformers
    module: Any = of.module
    settings = library.GenerationConfig(
        do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW, pad_token_id=0, decoder_start_token_id=3
    )
    # not Whisper's own, which adds rules about timestamps and languages
    generate = library.GenerationMixin.generate
    tokens: torch.Tensor = generate(module.model, of.args[-1], generation_config=settings)
    return tokens[:, -NEW:]


# -- what is generated ---------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")  # of generate's settings
def test_the_tokens_are_those_of_transformers(name: str) -> None:
    of = workload(name)
    results = generated(variant(of))
    assert results["tokens"].dtype == torch.int64
    assert results["tokens"].shape == (2, NEW)
    assert len(set(results["tokens"].flatten().tolist())) > 2
    assert torch.equal(results["tokens"], by_transformers(of))


def test_logits_are_those_that_the_choices_were_made_from() -> None:
    results = generated(variant(workload("llama", 11)))
    assert list(results) == ["tokens", *(f"logits.{step}" for step in (1, 2, 4, 8, 11))]
    for step in (1, 2, 4, 8, 11):
        logits = results[f"logits.{step}"]
        assert logits.shape == (2, generators.VOCABULARY)
        assert torch.equal(logits.argmax(dim=-1), results["tokens"][:, step - 1])


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_is_emptied_and_stays_where_it_is(name: str) -> None:
    subject = variant(workload(name))
    module: Any = subject.program.module
    first = generated(subject)

    def addresses() -> list[int]:
        both = (getattr(module.cache, part, module.cache) for part in CACHES)
        return [t.data_ptr() for cache in both for layer in cache.layers for t in (layer.keys, layer.values)]

    before = addresses()
    for _ in range(2):
        again = generated(subject)
        assert all(torch.equal(first[name], again[name]) for name in first)
    assert addresses() == before
    assert not [name for name, _ in module.named_buffers() if "cache" in name]  # nothing to compare


@pytest.mark.parametrize("name", ["llama", "whisper"])
def test_forced_tokens_are_read_and_choices_reported(name: str) -> None:
    subject = variant(workload(name))
    free = generated(subject)
    forced = (free["tokens"] + 1) % generators.VOCABULARY
    subject.drive_with(forced=forced)
    led = generated(subject)
    assert torch.equal(led["logits.1"], free["logits.1"])
    assert torch.equal(led["tokens"][:, 0], free["tokens"][:, 0])
    assert not torch.equal(led["logits.2"], free["logits.2"])
    assert not torch.equal(led["tokens"], free["tokens"])
    assert not torch.equal(led["tokens"], forced)
    subject.drive_with(forced=free["tokens"])
    assert torch.equal(generated(subject)["tokens"], free["tokens"])


@pytest.mark.parametrize("name", ["llama", "whisper"])
def test_there_is_one_lap_right_after_the_first_call(name: str) -> None:
    subject = variant(workload(name))
    said: list[str] = []
    forward = subject.program.forward()

    def noted(*given: Any) -> Any:
        said.append("call")
        return forward(*given)

    subject.use(noted)
    subject.drive_with(lap=lambda: said.append("lap"))
    generated(subject)
    assert said == ["call", "lap"] + ["call"] * (NEW - 1)


@pytest.mark.parametrize("name", MODELS)
def test_other_precisions(name: str) -> None:
    of = workload(name)
    plain = generated(variant(of))
    exact = variant(of, exact=True)
    exact.drive_with(forced=plain["tokens"])
    wide = generated(exact)
    assert wide["logits.8"].dtype == torch.float64
    assert torch.allclose(wide["logits.8"].float(), plain["logits.8"], rtol=1e-3, atol=1e-3)
    for dtype in ("bfloat16", "amp"):
        reduced = generated(variant(of, dtype))
        assert reduced["logits.8"].dtype == torch.bfloat16
        assert bool(reduced["logits.8"].isfinite().all())


# -- built ---------------------------------------------------------------------------------


def test_a_state_space_model_is_refused() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    with torch.device("meta"):
        model = MambaForCausalLM(MambaConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1))
    with pytest.raises(ValueError, match="MambaForCausalLM has no static KV cache"):
        causal_workload(model, 4, 4, 1, 16)


@pytest.mark.parametrize("name", MODELS)
def test_more_tokens_than_a_model_has_room_for_are_refused(name: str) -> None:
    read = 1 if name == "whisper" else generators.PROMPT
    with torch.device("meta"):
        of = workload(name, 32 - read)
        assert all(t.device.type == "meta" for t in [*of.module.parameters(), *of.args])
        with pytest.raises(ValueError, match=r"^\w+ has room for 32 tokens, not for 33$"):
            workload(name, 33 - read)


def test_transformers_without_static_layers_is_refused_in_a_sentence(monkeypatch: Patch) -> None:
    from transformers import cache_utils

    monkeypatch.delattr(cache_utils, "StaticSlidingWindowLayer")  # as before 4.57
    for name in ("llama", "whisper"):
        with pytest.raises(
            ImportError, match=r"^--generate needs transformers 4.57 or later; .* is installed$"
        ):
            generated(variant(workload(name)))


# -- in a session --------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("llama", "float32"), ("whisper", "bfloat16")])
def test_a_session_times_both_parts(name: str, dtype: str) -> None:
    setting = Setting(mode=Mode.GENERATE, device_type="cpu", scale="tiny")
    (case,) = (case for case in generators.cases(setting) if case.name == name)
    protocol = Protocol(min_sample_s=0.0, threads=1)
    job = make_job(candidates=("aot_eager",), dtype=dtype, protocol=protocol)
    ready = opened(replace(job, case=case))
    status, parity, metrics, _ = ready.prepare("aot_eager")
    assert status is Status.PASS, parity
    assert (known(parity).reference, known(parity).failed) == ("fp64", 0)
    assert metrics["unique_graphs"] == 2
    ready.warm_up()
    rounds, recompiled = ready.measure(3)
    assert recompiled == {}
    assert len(rounds) == 3
    for timed_round in rounds:
        assert set(timed_round.prefill_s) == {BASELINE, "aot_eager"}
        assert all(
            0.0 < timed_round.prefill_s[variant] < timed_round.seconds[variant]
            for variant in timed_round.prefill_s
        )
