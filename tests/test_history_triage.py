"""Decisions of a team about changes: the file, and the state that it gives to a regression."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest

from harness.errors import ConfigError, ExitCode, StoreError
from harness.history.changes import analyse, confirmed_by, evidence_of, with_confirmed
from harness.history.series import Epoch, Series
from harness.history.triage import FILE, Decision, acknowledge, read_triage, stated
from tests.histories import line, series_case

TODAY = dt.date(2026, 11, 1)
COMMITS = line(200)


def analysed(*levels, length=20, clock=None, epoch=None, card="card", metric="gflops", noise=0.002):
    """A case at one level after another, a length each, with a clock for each."""
    figures = np.repeat(np.array(levels, dtype=np.float64), length)
    drawn = np.random.default_rng(4).standard_normal(figures.size)
    drawn[[at + k for at in range(0, figures.size, length) for k in (-2, -1, 0, 1)]] = 0
    epoch = np.zeros(figures.size, np.int64) if epoch is None else np.repeat(epoch, length)
    series = Series(
        card=card,
        case=series_case(metric=metric, direction="higher" if metric == "gflops" else "lower"),
        positions=np.arange(figures.size),
        values=figures * np.exp(noise * drawn),
        failed=np.zeros(figures.size, np.bool_),
        epoch=epoch,
        epochs=tuple(
            Epoch(start=int(np.flatnonzero(epoch == number)[0]), context={}) for number in np.unique(epoch)
        ),
        beside={"sm_clock_mhz": np.repeat(np.array(clock or [1980.0] * len(levels)), length)},
    )
    return analyse(series, None, COMMITS)


def states(found, *decisions, today=TODAY):
    return [each.state for each in stated(found, decisions, COMMITS, today)]


def decision(change, **changes):
    known = Decision(
        id=change.id,
        case=change.case,
        card=change.card,
        commit=COMMITS[change.bad].hash[:12],
        reason="on purpose",
        author="Ada",
    )
    return replace(known, **changes)


SLOWER = analysed(100, 90)
[FALL] = SLOWER.changes
STRANGER = {"id": "0123456789", "commit": "f" * 12}
"""Neither this change's id nor a commit of its."""


# States


def test_a_regression_that_nobody_has_decided_on_is_new_and_open():
    [each] = stated(SLOWER, (), COMMITS, TODAY)
    assert (each.state, each.is_open, each.decision, each.fixed_by) == ("new", True, None, None)


def test_an_accepted_one_is_not_open():
    accepted = decision(FALL)
    [each] = stated(SLOWER, (accepted,), COMMITS, TODAY)
    assert (each.state, each.is_open, each.decision) == ("acknowledged", False, accepted)


@pytest.mark.parametrize(
    ("expires", "state"),
    [
        (None, "acknowledged"),
        (TODAY + dt.timedelta(days=1), "acknowledged"),
        (TODAY, "acknowledged"),
        (TODAY - dt.timedelta(days=1), "expired"),
    ],
)
def test_it_is_accepted_up_to_its_last_day(expires, state):
    [each] = stated(SLOWER, (decision(FALL, expires=expires),), COMMITS, TODAY)
    assert each.state == state
    assert each.is_open == (state == "expired")
    assert each.decision is not None


@pytest.mark.parametrize(
    ("largest", "state"),
    [(None, "acknowledged"), (12.0, "acknowledged"), (10.5, "expired"), (9, "expired")],
)
def test_it_is_accepted_up_to_its_size(largest, state):
    assert states(SLOWER, decision(FALL, largest_percent=largest)) == [state]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        pytest.param({}, "acknowledged", id="all of it"),
        pytest.param({"id": "0123456789"}, "acknowledged", id="the id has moved"),
        pytest.param(
            {"id": "0123456789", "commit": COMMITS[20].hash.upper()}, "acknowledged", id="the whole hash"
        ),
        pytest.param({"commit": "f" * 12}, "acknowledged", id="the commit is gone"),
        pytest.param(STRANGER, "new", id="neither id nor commit"),
        pytest.param({"id": "0123456789", "commit": COMMITS[19].hash[:12]}, "new", id="the commit before"),
        pytest.param({"id": "0123456789", "commit": COMMITS[21].hash[:12]}, "new", id="the commit after"),
        pytest.param({"card": None}, "acknowledged", id="on every card"),
        pytest.param({"card": "another"}, "new", id="on another card"),
        pytest.param({"case": "matmul.naive@2048"}, "new", id="of another case"),
    ],
)
def test_a_decision_is_about_its_change_alone(changes, state):
    assert (FALL.good, FALL.bad) == (19, 20)
    assert states(SLOWER, decision(FALL, **changes)) == [state]


def test_every_commit_of_a_range_is_enough():
    wide = replace(FALL, good=15, bad=20)
    found = replace(SLOWER, changes=(wide,))
    for position, state in ((15, "new"), (16, "acknowledged"), (18, "acknowledged"), (20, "acknowledged")):
        moved = decision(FALL, id="0123456789", commit=COMMITS[position].hash[:10])
        assert states(found, moved) == [state]


def test_on_another_card_the_same_commit_is_accepted_where_no_card_is_named():
    elsewhere = analysed(100, 90, card="other")
    assert elsewhere.changes[0].id != FALL.id
    assert states(elsewhere, decision(FALL)) == ["new"]
    assert states(elsewhere, decision(FALL, card=None)) == ["acknowledged"]


def test_one_decision_accepts_one_change():
    twice = analysed(100, 90, 81)
    first, second = twice.changes
    assert states(twice, decision(first)) == ["acknowledged", "new"]
    assert states(twice, decision(second)) == ["new", "acknowledged"]
    assert states(twice, decision(first), decision(second)) == ["acknowledged", "acknowledged"]


@pytest.mark.parametrize("late_first", [True, False])
def test_of_two_decisions_the_one_in_force_counts(late_first):
    late, new = decision(FALL, expires=dt.date(2020, 1, 1)), decision(FALL, id="0123456789")
    pair = (late, new) if late_first else (new, late)
    [each] = stated(SLOWER, pair, COMMITS, TODAY)
    assert (each.state, each.decision) == ("acknowledged", new)


def test_what_got_better_has_no_state():
    assert states(analysed(90, 100)) == [""]
    [each] = stated(analysed(90, 100), (), COMMITS, TODAY)
    assert not each.is_open


def test_what_the_card_did_has_no_state():
    found = analysed(100, 92, clock=[1980, 1822])
    assert [change.kind for change in found.changes] == ["environment"]
    assert states(found) == [""]


def test_of_a_time_a_rise_is_open_and_a_fall_fixes_it():
    assert states(analysed(10, 11, metric="time_ms")) == ["new"]
    assert states(analysed(10, 11, 10, metric="time_ms")) == ["fixed", ""]
    assert states(analysed(11, 10, metric="time_ms")) == [""]


# Fixed


def test_what_was_taken_back_is_fixed_by_the_change_that_did():
    found = analysed(100, 90, 100)
    fall, rise = stated(found, (), COMMITS, TODAY)
    assert (fall.state, fall.is_open, fall.fixed_by) == ("fixed", False, rise.change.id)
    assert rise.state == ""


def test_fixed_is_said_before_accepted():
    found = analysed(100, 90, 100)
    assert states(found, decision(found.changes[0])) == ["fixed", ""]


@pytest.mark.parametrize(
    ("level", "state"), [(99.8, "fixed"), (98, "fixed"), (130, "fixed"), (96, "new"), (93, "new")]
)
def test_a_quarter_of_it_may_be_left(level, state):
    assert states(analysed(100, 90, level))[0] == state


def test_what_nobody_can_see_may_be_left():
    found = replace(analysed(100, 97, 98.8), floor=0.02)
    assert states(found)[0] == "fixed"
    assert states(replace(found, floor=0.005))[0] == "new"


def test_what_fell_again_was_fixed_and_is_a_new_regression():
    found = analysed(100, 90, 100, 90)
    assert states(found) == ["fixed", "", "new"]


def test_a_fix_in_two_halves_is_one():
    found = analysed(100, 80, 90, 100)
    first, *_, last = stated(found, (), COMMITS, TODAY)
    assert (first.state, first.fixed_by) == ("fixed", last.change.id)


def test_what_went_with_an_epoch_is_fixed_by_no_change():
    found = analysed(100, 90, 102, epoch=[0, 0, 1])
    [each] = stated(found, (), COMMITS, TODAY)
    assert (each.state, each.fixed_by) == ("fixed", None)
    assert states(analysed(100, 90, 91, epoch=[0, 0, 1])) == ["new"]


def test_the_end_of_a_throttled_stretch_fixes_nothing():
    """The regression happened meanwhile: the figure is back, the code is not."""
    found = analysed(100, 92, 83, 90, clock=[1980, 1822, 1822, 1980])
    assert [change.kind for change in found.changes] == ["environment", "regression", "environment"]
    assert states(found) == ["", "new", ""]


def test_a_throttled_stretch_that_ends_with_an_epoch_fixes_nothing():
    found = analysed(100, 90, 82.8, 90, clock=[1980, 1980, 1822, 1980], epoch=[0, 0, 0, 1])
    assert [change.kind for change in found.changes] == ["regression", "environment"]
    assert states(found) == ["new", ""]


def test_a_fix_is_seen_though_the_clock_is_down_meanwhile():
    found = analysed(100, 90, 82.8, 92, 100, clock=[1980, 1980, 1822, 1822, 1980])
    kinds = [change.kind for change in found.changes]
    assert kinds == ["regression", "environment", "improvement", "environment"]
    [fall, _, rise, _] = stated(found, (), COMMITS, TODAY)
    assert (fall.state, fall.fixed_by) == ("fixed", rise.change.id)


def test_a_throttled_stretch_after_a_regression_changes_nothing_about_it():
    found = analysed(100, 90, 82.8, 90, clock=[1980, 1980, 1822, 1980])
    assert states(found) == ["new", "", ""]


# The file


def written(root, text):
    path = root / FILE
    path.write_text(text, encoding="utf-8")
    return path


ENTRY = """\
[[change]]
id = "3f2a9c1e07"
case = "matmul.naive@1024"
commit = "5f1c2d3e4a5b"
reason = "on purpose"
author = "Ada"
"""


def test_without_a_file_nothing_is_decided(tmp_path):
    assert read_triage(tmp_path) == ()


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "change = []\n"])
def test_a_file_may_be_empty(tmp_path, text):
    written(tmp_path, text)
    assert read_triage(tmp_path) == ()


def test_an_entry_in_full_and_one_with_what_it_must_have(tmp_path):
    more = 'card = "nvidia-h200-b71b08fa"\nexpires = 2027-03-31\nlargest_percent = 12.5\n'
    written(tmp_path, ENTRY + more + "\n" + ENTRY.replace("3f2a", "4f2a"))
    full, least = read_triage(tmp_path)
    assert full == Decision(
        id="3f2a9c1e07",
        case="matmul.naive@1024",
        commit="5f1c2d3e4a5b",
        reason="on purpose",
        author="Ada",
        card="nvidia-h200-b71b08fa",
        expires=dt.date(2027, 3, 31),
        largest_percent=12.5,
    )
    assert (least.id, least.card, least.expires, least.largest_percent) == ("4f2a9c1e07", None, None, None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("id = 7", "id is 7; expected a text"),
        ('id = ""', "id is ''; expected a text"),
        ("case = ['a']", "case is ['a']; expected a text"),
        ("reason = true", "reason is True; expected a text"),
        ("author = 1.5", "author is 1.5; expected a text"),
        ("card = 3", "card is 3; expected a text"),
        ('card = ""', "card is ''; expected a text"),
        ('commit = "5f1c"', "commit is '5f1c'; expected a hash of 7 to 40 digits"),
        (f'commit = "{"a" * 41}"', "expected a hash of 7 to 40 digits"),
        ('commit = "HEAD~1234"', "commit is 'HEAD~1234'; expected a hash of 7 to 40 digits"),
        ('expires = "2027-03-31"', "expires is '2027-03-31'; expected a date, such as 2027-03-31"),
        ("expires = 2027-03-31T10:00:00", "expected a date, such as 2027-03-31"),
        ("expires = 2027", "expires is 2027; expected a date"),
        ('largest_percent = "12"', "largest_percent is '12'; expected a number above 0"),
        ("largest_percent = true", "largest_percent is True; expected a number above 0"),
        ("largest_percent = 0", "largest_percent is 0; expected a number above 0"),
        ("largest_percent = -3.5", "largest_percent is -3.5; expected a number above 0"),
        ("largest_percent = nan", "largest_percent is nan; expected a number above 0"),
        (
            "expirse = 2027-03-31",
            "no such key: expirse. Keys: id, case, commit, reason, author, card, ",
        ),
    ],
)
def test_a_wrong_entry_is_told_by_file_number_and_what_was_expected(tmp_path, line, words):
    key = line.partition(" ")[0]
    wrong = "".join(each for each in ENTRY.splitlines(keepends=True) if not each.startswith(f"{key} "))
    path = written(tmp_path, ENTRY.replace("3f2a", "4f2a") + "\n" + wrong + line + "\n")
    with pytest.raises(ConfigError) as raised:
        read_triage(tmp_path)
    assert raised.value.message.startswith(f"{path}, change 2")
    assert words in raised.value.message
    assert raised.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("key", ["id", "commit", "reason", "author"])
def test_what_an_entry_must_have(tmp_path, key):
    lacking = "".join(line for line in ENTRY.splitlines(keepends=True) if not line.startswith(f"{key} "))
    path = written(tmp_path, lacking)
    with pytest.raises(ConfigError) as raised:
        read_triage(tmp_path)
    assert raised.value.message == f"{path}, change 1: {key} is None; expected a text."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[change\n", "Cannot read {path}: "),
        ("\x00", "Cannot read {path}: "),
        ("change = " + "[" * 100_000, "Cannot read {path}: "),
        ('[[change]]\nid = "a\n', "Cannot read {path}: "),
        ("[change]\nid = 'a'\n", "{path} holds no list; expected tables named [[change]]."),
        ("change = 7\n", "{path} holds no list; expected tables named [[change]]."),
        ("[[changes]]\nid = 'a'\n", "{path} holds changes; expected tables named [[change]]."),
        ("version = 1\n" + ENTRY, "{path} holds version; expected tables named [[change]]."),
        ("change = [1]\n", "{path}, change 1 is 1; expected a table."),
    ],
)
def test_a_damaged_file_is_told_by_its_name(tmp_path, text, words):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        read_triage(tmp_path)
    assert raised.value.message.startswith(words.format(path=path))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"reason = '\xe9'\n"])
def test_a_file_that_is_no_text_is_told_by_its_name(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigError, match=f"Cannot read .*{FILE}"):
        read_triage(tmp_path)


def test_a_folder_of_that_name_is_told(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(ConfigError, match="Cannot read"):
        read_triage(tmp_path)


# Adding to it

TEXTS = [
    "plain words",
    "quotes \" and ' and ''' and \"\"\" and \\ and \\n and \\u0041",
    "two\nlines\r\nand\ta tab",
    '[[change]]\nid = "other"\n# no comment',
    "grün, 速い, עברית, z\u0351\u0343",
    "🚀 and 👩\u200d🔬, beyond the first plane",
    "\x00\x01\x1b[31m\x7f\x85\u2028\u202e controls",
    "{{ x }} ${y} %s",
    " spaces around ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_accepted_is_read_back_the_same(tmp_path, text):
    accepted = decision(FALL, reason=text, author=text, case=text, card=text)
    assert acknowledge(tmp_path, accepted) == tmp_path / FILE
    assert read_triage(tmp_path) == (accepted,)


@pytest.mark.parametrize(
    "changes",
    [
        {"card": None},
        {"expires": dt.date(2027, 3, 31)},
        {"largest_percent": 12.5},
        {"largest_percent": 7},
        {"largest_percent": 1e-7},
        {"largest_percent": float("inf")},
    ],
)
def test_what_is_told_of_it_is_read_back_the_same(tmp_path, changes):
    accepted = decision(FALL, **changes)
    acknowledge(tmp_path, accepted)
    assert read_triage(tmp_path) == (accepted,)


def test_half_a_character_is_written_as_what_can_be_read(tmp_path):
    """An argument that is no UTF-8 reaches Python so."""
    acknowledge(tmp_path, decision(FALL, reason="caf\udce9"))
    [accepted] = read_triage(tmp_path)
    assert accepted.reason == "caf?"


def test_a_new_file_says_what_it_is_for(tmp_path):
    text = acknowledge(tmp_path, decision(FALL)).read_text()
    assert text.startswith("# Changes of speed that this project has accepted")
    assert "harness history" in text
    assert text.endswith("\n")


@pytest.mark.parametrize(
    "before",
    [
        "# ours alone\n\n" + ENTRY + "# at the end",
        ENTRY,
        ENTRY.rstrip("\n"),
        ENTRY + "\n\n\n",
        "",
        "# nothing yet\n",
        "# gr\u00fcn\r\n" + ENTRY.replace("\n", "\r\n"),
    ],
)
def test_what_was_there_is_left_as_it_was(tmp_path, before):
    path = tmp_path / FILE
    path.write_bytes(before.encode())
    known = read_triage(tmp_path)
    acknowledge(tmp_path, decision(FALL))
    acknowledge(tmp_path, decision(FALL, id="9876543210"))
    assert path.read_bytes().startswith(before.rstrip("\n").encode())
    assert read_triage(tmp_path) == (*known, decision(FALL), decision(FALL, id="9876543210"))
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_accepted_twice(tmp_path):
    acknowledge(tmp_path, decision(FALL))
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(ConfigError) as raised:
        acknowledge(tmp_path, decision(FALL, reason="another"))
    assert raised.value.message == f"{tmp_path / FILE} has an entry for {FALL.id} already: edit it there."
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("text", ["[change\n", "[[changes]]\n", 'change = [{id = "a"}]\n'])
def test_a_damaged_file_is_not_added_to(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=str(path)):
        acknowledge(tmp_path, decision(FALL))
    assert path.read_text() == text


def test_a_list_in_one_line_cannot_be_added_to_and_is_left_whole(tmp_path):
    fields = ", ".join(line for line in ENTRY.splitlines()[1:])
    path = written(tmp_path, f"change = [{{{fields}}}]\n")
    before = path.read_text()
    assert len(read_triage(tmp_path)) == 1
    with pytest.raises(ConfigError, match=r"expected tables named \[\[change\]\]"):
        acknowledge(tmp_path, decision(FALL))
    assert path.read_text() == before


def test_a_folder_that_is_not_there_is_made_and_a_file_in_its_place_is_an_error(tmp_path):
    (tmp_path / "a file").write_text("")
    with pytest.raises((StoreError, ConfigError), match="Cannot"):
        acknowledge(tmp_path / "a file", decision(FALL))


def test_a_full_disk_is_an_error_in_words_and_leaves_the_file_whole(tmp_path, monkeypatch):
    path = written(tmp_path, ENTRY)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.system.cache.write_atomically", full)
    with pytest.raises(StoreError) as raised:
        acknowledge(tmp_path, decision(FALL))
    assert raised.value.message == f"Cannot write {path}: No space left on device."
    assert path.read_text() == ENTRY


# What is no step that stays


def noisy(factors):
    """Sixty figures and more about 100, with noise of 0.5 %."""
    flat = analysed(100, length=len(factors))
    values = 100 * np.exp(0.005 * np.random.default_rng(5).standard_normal(len(factors))) * factors
    return analyse(replace(flat.series, values=values), None, COMMITS)


def back(factor):
    factors = np.ones(60)
    factors[30:34] = factor
    return noisy(factors)


def test_a_fall_that_came_back_after_a_few_commits_is_fixed_and_both_are_told():
    fall, rise = back(0.7).changes
    assert (fall.kind, fall.bad, rise.kind, rise.bad) == ("regression", 30, "improvement", 34)
    assert fall.effect == pytest.approx(-0.3, abs=0.01)
    first, second = stated(back(0.7), (), COMMITS, TODAY)
    assert (first.state, first.fixed_by, second.state) == ("fixed", rise.id, "")


def test_a_rise_that_went_again_is_none():
    assert back(1.3).changes == ()


def test_a_slide_is_a_drift_and_open():
    slide = noisy(np.linspace(1, 0.85, 120))
    [each] = [each for each in stated(slide, (), COMMITS, TODAY) if each.change.kind == "drift"]
    assert each.is_open
    assert each.change.bad == 119
    assert each.change.effect < -0.05
    accepted = decision(each.change, id="0123456789")
    assert [one.is_open for one in stated(slide, (accepted,), COMMITS, TODAY)] == [True]
    assert not [each for each in noisy(np.linspace(1, 1.15, 120)).changes if each.kind == "drift"]


def test_steps_among_strays_are_what_commits_did_and_no_slide():
    random = np.random.default_rng(1)
    factors = np.repeat([1.0, 0.88, 0.77, 0.68], 30) * np.exp(0.03 * random.standard_normal(120))
    factors[random.choice(120, 12, replace=False)] *= np.linspace(0.5, 0.9, 12)
    found = noisy(factors).changes
    assert [(each.kind, abs(each.bad - at) <= 3) for each, at in zip(found, (30, 60, 90), strict=True)] == [
        ("regression", True)
    ] * 3


def test_a_step_counts_where_another_card_is_sure_of_it():
    unsure = replace(analysed(100, 90, card="b"), changes=(), candidates=analysed(100, 90, card="b").changes)
    assert confirmed_by(evidence_of([unsure])) == frozenset()
    ids = confirmed_by(evidence_of([analysed(100, 90), unsure]))
    assert ids == {unsure.candidates[0].id}
    counting = with_confirmed(unsure, ids)
    assert (counting.changes, counting.candidates) == (unsure.candidates, ())
    assert confirmed_by(evidence_of([analysed(100, 110), unsure])) == frozenset()
