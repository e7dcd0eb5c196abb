"""The file of cards: accepted and refused contents, and the jobs that it gives."""

from __future__ import annotations

import json
import subprocess

import pytest

from harness.ci.scaffold import Fleet, FleetCard, decode_fleet, encode_fleet, matrix_of, narrowed, read_fleet
from harness.errors import ConfigError
from tests.support import ROOT, caller

CARD = {"name": "h200", "labels": ["self-hosted", "gpu-h200"]}


def decode(*cards, **more):
    return decode_fleet(json.dumps({"cards": cards, **more}).encode(), "fleet.json")


@pytest.fixture
def call(capsys, monkeypatch):
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    return caller(capsys, monkeypatch)


def test_a_card_has_a_name_labels_and_the_first_device():
    (card,) = decode(CARD).cards
    assert (card.name, card.labels, card.device) == ("h200", ("self-hosted", "gpu-h200"), "cuda:0")
    assert card.arguments == ("--device", "cuda:0")


def test_what_a_card_is_measured_at_becomes_arguments():
    (card,) = decode(
        {**CARD, "device": "opencl:1", "cases": ["matmul.*"], "sizes": ["64", "1,2,3"], "quick": True}
    ).cards
    assert card.arguments == (
        *("matmul.*", "--device", "opencl:1"),
        *("--size", "64", "--size", "1,2,3", "--quick"),
    )


def test_a_matrix_has_a_row_for_each_card():
    matrix = json.loads(matrix_of(decode(CARD, {**CARD, "name": "a4000", "sizes": ["64"]})))
    assert matrix == {
        "card": [
            {"name": "h200", "labels": CARD["labels"], "device": "cuda:0", "arguments": "--device cuda:0"},
            {
                "name": "a4000",
                "labels": CARD["labels"],
                "device": "cuda:0",
                "arguments": "--device cuda:0 --size 64",
            },
        ]
    }


def test_more_devices_of_a_card_are_measured_in_the_same_job():
    (card,) = decode({**CARD, "also": ["opengl:0", "cpu:0"]}).cards
    assert card.devices == ("cuda:0", "opengl:0", "cpu:0")
    assert card.arguments == ("--device", "cuda:0,opengl:0,cpu:0")
    assert json.loads(matrix_of(Fleet(cards=(card,))))["card"][0]["device"] == "cuda:0,opengl:0,cpu:0"


@pytest.mark.parametrize("devices", [["cuda:0"], ["opengl:0", "opengl:0"]])
def test_a_device_that_a_card_has_twice_is_refused(devices):
    with pytest.raises(ConfigError, match=r"gives h200 the device .* more than once"):
        decode({**CARD, "also": devices})


def test_pytest_s_benchmarks_are_measured_on_each_card_and_cases_that_are_asked_for_in_their_place():
    fleet = decode(CARD, pytest=["benchmarks", "tests/perf"])
    [card] = json.loads(matrix_of(fleet))["card"]
    assert card["arguments"] == "--device cuda:0 --pytest benchmarks --pytest tests/perf"
    [card] = json.loads(matrix_of(narrowed(fleet, ["matmul.*"])))["card"]
    assert card["arguments"] == "matmul.* --device cuda:0"
    with pytest.raises(ConfigError, match="drop one"):
        decode({**CARD, "cases": ["matmul.*"]}, pytest=["benchmarks"])


@pytest.mark.parametrize("path", ["-x", "../tests", "a/../../b", "a b", "/etc", "a;id", ""])
def test_what_is_no_folder_of_tests_is_refused(path):
    with pytest.raises(ConfigError, match="no file of cards"):
        decode(CARD, pytest=[path])


def test_a_matrix_is_one_line_that_a_shell_splits_into_the_same_words():
    fleet = decode(
        {
            **CARD,
            "cases": ["matmul.*tile?", "[a-c]*", "a.b@6x4", "a.b[m=6,n=4]"],
            "sizes": ["500x300x700", "m=1,n=2"],
        }
    )
    matrix = matrix_of(fleet)
    assert "\n" not in matrix
    script = 'read -r -a words <<< "$1"; printf "%s\\n" "${words[@]}"'
    arguments = json.loads(matrix)["card"][0]["arguments"]
    split = subprocess.run(
        ["bash", "-c", script, "-", arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert tuple(split.stdout.splitlines()) == fleet.cards[0].arguments


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "H200"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "-x"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "h200\n"}, "name"),
        ({"name": "../x"}, "name"),
        ({"name": "x" * 41}, "name"),
        ({"name": 7}, "name"),
        ({"labels": []}, "labels"),
        ({"labels": "gpu"}, "labels"),
        ({"labels": ["$(id)"]}, "labels"),
        ({"labels": ["a\nb"]}, "labels"),
        ({"labels": ["x"] * 17}, "labels"),
        ({"device": "vulkan:0"}, "device"),
        ({"device": "cuda:0 --no-save"}, "device"),
        ({"device": "cuda:0\n"}, "device"),
        ({"device": ["cuda:0"]}, "device"),
        ({"also": "opengl:0"}, "also"),
        ({"also": ["opengl:0,cpu:0"]}, "also"),
        ({"cases": ["--json"]}, "cases"),
        ({"cases": ["a b"]}, "cases"),
        ({"cases": ["$HOME"]}, "cases"),
        ({"cases": ["`id`"]}, "cases"),
        ({"cases": "matmul"}, "cases"),
        ({"sizes": ["0"]}, "sizes"),
        ({"sizes": ["1;id"]}, "sizes"),
        ({"sizes": [64]}, "sizes"),
        ({"sizes": ["1,2,"]}, "sizes"),
        ({"quick": "yes"}, "quick"),
        ({"quick": 1}, "quick"),
        ({"size": ["64"]}, "size"),
        ({"arguments": "--device null"}, "arguments"),
    ],
)
def test_what_a_card_cannot_be_is_refused_by_name(change, said):
    with pytest.raises(ConfigError, match=rf"fleet\.json is no file of cards: .*{said}"):
        decode({**CARD, **change})


@pytest.mark.parametrize("missing", ["name", "labels"])
def test_a_card_without_name_or_labels_is_refused(missing):
    with pytest.raises(ConfigError, match=missing):
        decode({key: value for key, value in CARD.items() if key != missing})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"cards": {}}',
        b'{"cards": [1]}',
        b"\xff",
        b"[" * 200_000,
        b'{"cards": NaN}',
    ],
    ids=["empty", "list", "no cards", "null", "object", "number", "no text", "deep", "nan"],
)
def test_what_is_no_file_of_cards_is_refused(content):
    with pytest.raises(ConfigError, match=r"fleet\.json is no file of cards"):
        decode_fleet(content, "fleet.json")


def test_an_unknown_key_beside_the_cards_is_refused():
    with pytest.raises(ConfigError, match="runners"):
        decode(CARD, runners=[])


def test_a_key_said_twice_is_refused():
    content = b'{"cards": [{"name": "a", "labels": ["safe"], "labels": ["other"]}]}'
    with pytest.raises(ConfigError, match="'labels' twice"):
        decode_fleet(content, "fleet.json")


def test_two_cards_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="names h200 more than once"):
        decode(CARD, {**CARD, "device": "cuda:1"})


def test_a_file_that_is_too_large_is_refused():
    with pytest.raises(ConfigError, match="at most"):
        decode_fleet(b" " * (2**18 + 1), "fleet.json")


def test_a_fleet_reads_as_it_was_written():
    card = FleetCard(
        name="a",
        labels=("x",),
        device="opencl:0",
        also=("opengl:0",),
        cases=("m*",),
        sizes=("64",),
        quick=True,
    )
    fleet = Fleet(cards=(card, FleetCard(name="b", labels=("y", "z"))))
    assert decode_fleet(encode_fleet(fleet), "x") == fleet


def test_this_repository_s_own_file_can_be_read():
    assert all(card.labels for card in read_fleet(ROOT / ".github" / "fleet.json").cards)


def test_the_command_prints_the_matrix(project, call):
    project.write({".github/fleet.json": json.dumps({"cards": [CARD]})})
    done = call("ci", "fleet")
    assert done.status == 0
    assert [card["name"] for card in done.json["card"]] == ["h200"]


@pytest.mark.parametrize("cards", [[], [CARD]], ids=["none", "one"])
def test_the_command_gives_a_step_its_outputs(tmp_path, project, call, monkeypatch, cards):
    project.write({"cards.json": json.dumps({"cards": cards})})
    outputs = tmp_path / "outputs"
    outputs.write_text("before=1\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_OUTPUT", str(outputs))
    assert call("ci", "fleet", "cards.json").status == 0
    before, matrix, count = outputs.read_text(encoding="utf-8").splitlines()
    assert before == "before=1"
    assert len(json.loads(matrix.removeprefix("matrix="))["card"]) == len(cards)
    assert count == f"count={len(cards)}"


def test_the_command_says_that_there_is_no_such_file(project, call):
    done = call("ci", "fleet")
    assert ".github/fleet.json" in done.failed_with(2)
    assert "harness ci init" in done.err


def test_a_file_of_cards_that_is_broken_gives_a_step_no_outputs(tmp_path, project, call, monkeypatch):
    project.write({"cards.json": '{"cards": [{"name": "x"}]}'})
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "outputs"))
    assert call("ci", "fleet", "cards.json").status == 2
    assert not (tmp_path / "outputs").exists()


def test_outputs_that_cannot_be_written_are_an_error(tmp_path, project, call, monkeypatch):
    project.write({"cards.json": json.dumps({"cards": [CARD]})})
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path))
    assert str(tmp_path) in call("ci", "fleet", "cards.json").failed_with(3)


def test_a_light_comparison_is_at_the_quick_sizes_and_short():
    """A request by name is measured as usual, whatever the sizes of a card."""
    fleet = decode({**CARD, "sizes": ["4096"], "cases": ["matmul.*"]}, light=True)
    [card] = json.loads(matrix_of(fleet))["card"]
    assert card["arguments"] == "matmul.* --device cuda:0 --quick --budget 60"
    [card] = json.loads(matrix_of(narrowed(fleet, ["copy.naive"])))["card"]
    assert card["arguments"] == "copy.naive --device cuda:0 --size 4096"


def test_pytest_s_benchmarks_cannot_be_measured_lightly():
    with pytest.raises(ConfigError, match="light"):
        decode(CARD, light=True, pytest=["benchmarks"])
