"""Where the cards of ``--numerics`` are told: a table, framesand JSON."""

from dataclasses import replace

from harness.codec import from_json, to_json
from harness.schema import Record
from runner.analysis.derive import summarize
from runner.reports.parts.numerics import NUMERICS
from tests.factories import make_job, make_numerics, make_record
from torchduet.frames import frames_of

CONTROLS = make_numerics("eager again"), make_numerics("noisy eager", elements_equal=0)
OFF = {"elements_equal": 99, "tensors_equal": 1, "ulp_largest": 1.5e9, "top_1": None, "log_prob_mean": None}


def records() -> list[Record]:
    """Two candidates of a job, and one of another, which has no card."""
    cards = (("a", make_numerics("inductor", **OFF)), ("a", make_numerics("aot_eager")), ("b", None))
    return [
        replace(
            make_record(make_job(name), card.run if card else "torchscript"),
            numerics=card,
            numerics_controls=CONTROLS,
        )
        for name, card in cards
    ]


def test_controls_stand_before_the_candidates_of_their_job() -> None:
    (table,) = NUMERICS.tables(summarize(records()))
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(row["model"], row["run"]) for row in rows] == [
        *(("a", "eager again"), ("", "noisy eager"), ("", "aot_eager"), ("", "inductor")),
        *(("b", "eager again"), ("", "noisy eager")),
    ]
    off = rows[3]
    assert [row["bits\nequal"] for row in rows[:4]] == ["100 %", "0 %", "100 %", "99 %"]
    assert (off["ULP\nlargest"], off["of\ntensors"], off["SQNR\ndB"]) == ("1.5e+09", "50 %", "0.5")
    assert (off["top-1"], off["log p\nmean"], off["elements"], off["of"]) == ("-", "-", "100", "2,000,000")


def test_less_than_all_is_never_100_percent() -> None:
    card = make_numerics(elements=10**6, elements_equal=10**6 - 1)
    (table,) = NUMERICS.tables(summarize([replace(records()[0], numerics=card)]))
    assert table.rows[-1][table.header.index("bits\nequal")] == "99.9 %"


def test_programs_get_all_of_it() -> None:
    first = records()[0]
    assert from_json(Record, to_json(first)) == first
    rows = NUMERICS.data(summarize(records()))
    assert [row["run"] for row in rows] == [
        *("eager again", "noisy eager", "aot_eager", "inductor"),
        *("eager again", "noisy eager"),
    ]
    assert (rows[3]["bit_equal"], rows[3]["ulp_largest"], "top_1" in rows[3]) == (0.99, 1.5e9, False)
    frame = frames_of(records()).comparisons.set_index("compiler")
    assert frame["bit_equal"].dropna().to_dict() == {"inductor": 0.99, "aot_eager": 1.0}


def test_without_the_flag_nothing_is_shown() -> None:
    assert NUMERICS.tables(summarize([make_record(make_job())])) == ()
