"""The suite timm_models as the runner sees it: its list of cases, and the script. No torch."""

import dataclasses

import pytest

from harness.schema import Mode, Setting
from suites import timm_models
from suites.timm_models import Entry

BY_BATCH = {
    4: "cait_m36_384",
    16: "xcit_large_24_p8_224",
    32: "pnasnet5large",
    64: "convmixer_768_32 dpn107 pit_b_224 sebotnet33ts_256 swsl_resnext101_32x16d",
    128: """
        adv_inception_v3 beit_base_patch16_224 botnet26t_256 coat_lite_mini convit_base convnext_base
        cspdarknet53 deit_base_distilled_patch16_224 dla102 dm_nfnet_f0 eca_botnext26ts_256 eca_halonext26ts
        gernet_l gmixer_24_224 gmlp_s16_224 hrnet_w18 inception_v3 jx_nest_base mixer_b16_224 mixnet_l
        mobilenetv2_100 mobilevit_s nfnet_l0 poolformer_m36 repvgg_a2 res2net101_26w_4s res2net50_14w_8s
        res2next50 resmlp_12_224 resnest101e selecsls42b spnasnet_100 swin_base_patch4_window7_224
        tf_efficientnet_b0 tf_mixnet_l tinynet_a tnt_s_patch16_224 twins_pcpvt_base visformer_small
        vit_base_patch16_224 volo_d1_224
    """,
    256: "crossvit_9_240 ese_vovnet19b_dw fbnetv3_b gluon_inception_v3 lcnet_050 rexnet_100",
    512: "fbnetc_100 ghostnet_100 mnasnet_100 mobilenetv3_large_100",
    1024: "levit_128 regnety_002",
}  # images in a step on a 40 GB A100
FIELD = {name: batch for batch, names in BY_BATCH.items() for name in names.split()}
RENAMED = {"adv_inception_v3", "gluon_inception_v3", "jx_nest_base", "swsl_resnext101_32x16d"}


def setting(scale: str = "full", mode: Mode = Mode.TRAINING) -> Setting:
    return Setting(mode=mode, device_type="cpu", scale=scale)


def test_every_name_of_the_field_has_its_published_batch() -> None:
    assert len(FIELD) == 61
    entries = timm_models.entries()
    assert {name: entries[name].published_batch for name in FIELD} == FIELD
    assert {name for name, entry in entries.items() if entry.source == "the field"} == set(FIELD)


@pytest.mark.parametrize("name", list(timm_models.entries()))
def test_every_table_is_well_formed(name: str) -> None:
    entry = timm_models.entries()[name]
    assert entry.published_batch >= 1
    assert entry.parameters > 1_000_000
    assert 128 <= entry.resolution <= 640
    assert bool(entry.architecture) == bool(entry.architecture_reason) == (name in RENAMED)
    assert set(entry.tags) <= {"quick", "modern", "on_request"}
    modes = {mode.value for mode in Mode}
    assert set(entry.skip) <= modes
    assert set(entry.tolerance) <= modes
    assert bool(entry.tolerance) == bool(entry.tolerance_reason)
    assert "batch" not in entry.config
    for cut in (entry.small, entry.tiny):
        assert cut.get("resolution", 1) < entry.resolution
        assert 1 <= cut.get("batch", 2) <= 4


def test_a_model_asked_for_by_name_has_no_published_batch() -> None:
    full, small = (timm_models.case_for("resnet18", setting(scale)) for scale in ("full", "small"))
    assert (full.batch_size, small.batch_size) == (16, 2)
    assert full.published_batch_size is small.published_batch_size is None
    assert (small.suite, small.name, small.scale) == ("timm_models", "resnet18", "small")


def entry_of(**changes: object) -> Entry:
    return dataclasses.replace(timm_models.entries()["lcnet_050"], **changes)  # type: ignore[arg-type]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "skipped": entry_of(skip={"training": "it never converges"}),
        "loose": entry_of(tolerance={"training": 0.04}, tolerance_reason="measured"),
        "lost": entry_of(gone="timm 9.9 removed it"),
        "single": entry_of(published_batch=1),
    }
    monkeypatch.setattr(timm_models, "entries", lambda: entries)


@pytest.mark.usefixtures("planted")
def test_a_skip_and_a_tolerance_hold_in_their_mode() -> None:
    training = {case.name: case for case in timm_models.cases(setting())}
    inference = {case.name: case for case in timm_models.cases(setting(mode=Mode.INFERENCE))}
    assert training["skipped"].skip == "it never converges"
    assert training["loose"].tolerance == 0.04
    assert training["loose"].skip == inference["skipped"].skip == ""
    assert inference["loose"].tolerance is training["skipped"].tolerance is None


@pytest.mark.usefixtures("planted")
def test_a_model_that_timm_dropped_is_listed_as_skipped() -> None:
    for mode in (Mode.TRAINING, Mode.INFERENCE):
        cases = {case.name: case for case in timm_models.cases(setting(mode=mode))}
        assert cases["lost"].skip == "timm 9.9 removed it"


def test_tiny_starts_from_small_but_for_its_batch() -> None:
    entry = entry_of(small={"depth": 4, "width": 8, "batch": 4}, tiny={"depth": 1})
    assert entry.cuts("full") == {}
    assert entry.cuts("small") == {"depth": 4, "width": 8}
    assert entry.cuts("tiny") == {"depth": 1, "width": 8}
    assert (entry.batch_size("small"), entry.batch_size("tiny")) == (4, 2)
