"""The models of suite tiny_gpt: their size, their arithmetic, and what compilers can take."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from harness.loading.dropout import KEPT_DROPOUT
from suites import tiny_gpt
from suites.models.nano_gpt import NanoGPT
from suites.models.next_symbol import every_symbol_loss, last_symbol_loss
from suites.models.tl_transformer import Attention
from tests.factories import known
from tests.worker.planted import case_of, trainable

if TYPE_CHECKING:
    from harness.workload import Workload

NAMES = list(tiny_gpt.entries())
ADDITION = ["HuggingFaceGPT_addition", "NanoGPT_addition", "TLTransformer_addition", "MLP_addition"]
TRANSFORMERS = ADDITION[:3]
PLAIN = ADDITION[1:]  # our own code, which torch.jit.script reads


def workload(name: str) -> Workload:
    case = dataclasses.replace(case_of("tiny_gpt", name, scale="small"), batch_size=2)
    torch.manual_seed(0)
    return tiny_gpt.build(case)


@pytest.mark.parametrize("name", NAMES)
def test_parameter_count_is_exact(name: str) -> None:
    if name == "GPT2_124M":
        with torch.device("meta"):
            assert trainable(NanoGPT(**tiny_gpt.entries()[name].config)) == 124_373_760
        return
    if name == "GPT_150k":
        assert tiny_gpt.entries()[name].parameters == pytest.approx(150_000, rel=0.01)
    assert trainable(workload(name).module) == case_of("tiny_gpt", name, scale="small").parameters


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_no_position_sees_a_later_symbol(name: str) -> None:
    given = workload(name)
    module = given.module.eval()
    (tokens,) = given.args
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 16
    before, after = module(tokens), module(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7], after[:, 7])
    assert not torch.allclose(before[:, 8:], after[:, 8:])  # and the past is seen


def test_the_losses_count_the_last_position_on_addition_and_every_one_on_shakespeare() -> None:
    logits = torch.randn(4, 12, 16, requires_grad=True)
    target = torch.randint(16, (4, 12))
    by_hand = -logits.log_softmax(-1).gather(-1, target[..., None])
    torch.testing.assert_close(every_symbol_loss(logits, target), by_hand.mean())
    loss = last_symbol_loss(logits, target[:, -1])
    torch.testing.assert_close(loss, by_hand[:, -1].mean())
    loss.backward()  # type: ignore[no-untyped-call]
    assert not known(logits.grad)[:, :-1].any()
    for name in (*ADDITION, "MLP_shakespeare_16x64"):
        assert workload(name).loss is last_symbol_loss
    for name in ("NanoGPT_shakespeare_64", "TLTransformer_shakespeare_96", "GPT_150k"):
        assert workload(name).loss is every_symbol_loss


@pytest.mark.parametrize("name", ["NanoGPT_addition", "HuggingFaceGPT_addition"])
def test_dropout_runs_and_drops_nothing(name: str) -> None:
    given = workload(name)
    rates = [module.p for module in given.module.modules() if isinstance(module, nn.Dropout)]
    assert set(rates) == {KEPT_DROPOUT}
    trained = given.module.train()(*given.args)
    torch.testing.assert_close(trained, given.module.eval()(*given.args), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.series
def test_scripting_gives_the_same_logits_and_gradients(name: str) -> None:
    given = workload(name)
    eager, copied = given.module.train(), copy.deepcopy(given.module).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(copied)
    for _ in range(3):  # the executor specializes in the first calls
        for module in (eager, scripted):
            module.zero_grad()
            loss = last_symbol_loss(module(*given.args), given.target)
            loss.backward()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(scripted(*given.args), eager(*given.args), rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(eager.parameters(), copied.parameters(), strict=True):
            torch.testing.assert_close(theirs.grad, ours.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", ADDITION)
def test_dynamo_captures_forward_and_loss_in_one_graph(name: str) -> None:
    given = workload(name)
    module, loss_of = given.module.train(), known(given.loss)

    def forward(tokens: Tensor, target: Tensor) -> Tensor:
        return loss_of(module(tokens), target)

    (tokens,) = given.args
    torch._dynamo.reset()
    compiled = torch.compile(forward, backend="aot_eager", fullgraph=True)  # raises on a graph break
    torch.testing.assert_close(compiled(tokens, given.target), forward(tokens, given.target))


def test_nano_gpt_is_gpt2() -> None:
    """The logits of transformers' GPT-2 with our weights in it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    ours = NanoGPT(vocab_size=61, block_size=24, n_layer=3, n_head=4, n_embd=32).eval()
    with torch.no_grad():
        for parameter in ours.parameters():  # biases are built as zeros and norms as ones: make them count
            parameter.add_(torch.randn_like(parameter) * 0.1)
    # nanoGPT's function is exact, GPT-2's own is the tanh approximation
    more: dict[str, Any] = {"n_positions": 24, "activation_function": "gelu"}
    config = GPT2Config(vocab_size=61, n_layer=3, n_head=4, n_embd=32, **more)
    theirs = GPT2LMHeadModel(config).eval()  # type: ignore[no-untyped-call]
    # transformers keeps these as (in, out), nn.Linear as (out, in)
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    weights = {
        f"transformer.{name}": weight.T if name.endswith(turned) else weight
        for name, weight in ours.state_dict().items()
    }
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])  # tied to transformer.wte
    tokens = torch.randint(61, (3, 24))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-5, atol=1e-5)


def test_tl_attention_is_ordinary_attention() -> None:
    """One fused call with the per-head weights laid side by side gives the same."""
    torch.manual_seed(0)
    attention = Attention(4, 16, 4)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=0.5)
    x = torch.randn(2, 7, 16)

    def heads(weight: Tensor, bias: Tensor) -> Tensor:
        return (x.unsqueeze(1) @ weight) + bias.unsqueeze(1)  # (batch, head, time, d_head)

    q, k, v = (heads(getattr(attention, f"W_{part}"), getattr(attention, f"b_{part}")) for part in "QKV")
    z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    expected = (z @ attention.W_O).sum(1) + attention.b_O
    torch.testing.assert_close(attention(x), expected, rtol=1e-4, atol=1e-5)
