"""`python -m recap` as a person calls it, on a tiny text model on disk."""

import json
import subprocess
import sys

import pytest

from recap.bench import pass_cost
from recap.cli import main
from recap.drafters import DECODERS
from recap.trace import parse

from . import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny.build("llama", tmp_path_factory.mktemp("llama")))


def run(capsys, *words: str) -> tuple[int, str, str]:
    status = main(["ask", *words])
    out, err = capsys.readouterr()
    return status, out, err


def test_json_of_all_decoders_over_two_turns(model, capsys, tmp_path):
    trace = tmp_path / "trace.ndjson"
    words = ["what is the red square?", "--turn", "and the total?", "--model", model, "--json"]
    words += ["--decoder", "all", "--max-new-tokens", "40", "--trace", str(trace), "--budget", "15"]
    status, out, _ = run(capsys, *words)
    assert status == 0
    turns = [json.loads(line) for line in out.splitlines()]
    assert [t["decoder"] for t in turns] == [*DECODERS] * 2
    for turn in turns:
        assert turn["identical"] is True
        assert turn["tokens"] == len(turn["token_ids"]) <= 40
        assert {"model", "device", "dtype", "text", "passes", "prefill_s", "decode_s"} <= set(turn)
        assert turn["dtype"] == "float32"
    assert turns[3]["tokens_per_pass"] == 1.0
    assert set(turns[0]["sources"]) == {"3-token", "2-token", "1-token", "lookup", "runner-up"}
    assert set(turns[0]["sources"]["1-token"]) == {"lookups", "hits", "accepted"}
    kinds = [r["type"] for r in parse(trace.read_text(encoding="utf-8"))]
    assert kinds.count("start") == kinds.count("turn") == 8


def test_text_goes_to_stdout_and_figures_to_stderr(model, capsys):
    words = ("hello", "--model", model, "--max-new-tokens", "12", "--budget", "7")
    status, out, err = run(capsys, *words)
    assert status == 0
    assert out.strip()
    assert "tokens per pass" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("hi", "--image", "nowhere.png"), "“nowhere.png” cannot be read, there is no such file"),
        (("hi", "--image", __file__), "is not an image; try a PNG"),
        ((" ",), "A question is empty: ask something."),
        (("hi", "--turn", ""), "A question is empty"),
        (("hi", "--max-new-tokens", "0"), "--max-new-tokens must be at least 1"),
        (("hi", "--model", "./nowhere"), "There is no model directory"),
        (("hi", "--budget", "many"), 'a number of candidates (0 or more) or "auto", not "many"'),
        (("hi", "--budget=-3"), 'not "-3"'),
        (("hi", "--trace", "/nowhere/x.ndjson"), "cannot be written"),
        (("hi", "--dtype", "int3"), 'There is no dtype "int3"'),
        (("hi", "--device", "meta"), 'There is no device "meta"'),
        (("hi", "--budget", "²"), 'not "²"'),
        (("hi", "--threads", "9" * 20), "--threads must be"),
    ],
)
def test_mistakes_get_one_sentence(words, says, model, capsys):
    if "--model" not in words:
        words = (*words, "--model", model)
    status, out, err = run(capsys, *words)
    assert status == 2
    assert out == ""
    assert says in err
    assert err.startswith("recap: ")
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("words", [("ask",), ("ask", "hi", "--decoder", "fast"), ("fly",)])
def test_a_mistyped_command_gets_one_sentence(words, capsys):
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("recap: ")
    assert len(error.strip().splitlines()) == 1


def test_an_image_for_a_text_model_is_refused(model, capsys, tmp_path):
    from PIL import Image

    file = tmp_path / "red.png"
    Image.new("RGB", (20, 20), "red").save(file)
    status, _, err = run(capsys, "hi", "--image", str(file), "--model", model)
    assert status == 2
    assert "image" in err


def test_bench_writes_a_report(model, capsys, tmp_path):
    suite = tmp_path / "suite.jsonl"
    lines = [
        {"id": "a", "turns": ["what is the red square?", "and the total?"], "category": "x"},
        {"id": "b", "turns": ["hello"], "image": "missing.png"},
    ]
    suite.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    report = tmp_path / "report.json"
    words = ["bench", "--suite", str(suite), "--model", model, "--max-new-tokens", "24"]
    assert main([*words, "--budget", "15", "--out", str(report)]) == 0
    out = capsys.readouterr().out
    assert "failed: b: “missing.png” cannot be read" in out, "a failed sample is named"
    data = json.loads(report.read_text(encoding="utf-8"))
    assert data["samples_run"] == 1
    assert len(data["samples"]) == 8
    for figures in data["decoders"].values():
        assert figures["identical"] is True
    assert data["decoders"]["autoregressive"]["tokens_per_pass"] == 1.0
    assert data["decoders"]["autoregressive"]["speedup"] == 1.0


@pytest.mark.parametrize(
    ("words", "lines", "says"),
    [
        (("--max-new-tokens", "0"), ['{"id": "a", "turns": ["hi"]}'], "--max-new-tokens must be"),
        (("--limit", "0"), ['{"id": "a", "turns": ["hi"]}'], "--limit must be at least 1"),
        (("--decoders", ","), ['{"id": "a", "turns": ["hi"]}'], "--decoders names none"),
        (("--out", "/proc/no/r.json"), ['{"id": "a", "turns": ["hi"]}'], "cannot be written"),
        ((), [], "has no samples"),
        ((), ["[1]"], "Line 1 of suite.jsonl is no sample: it is not a JSON object."),
        ((), ['{"id": "a"}'], "is no sample: no 'question'."),
        ((), ['{"id": "a", "turns": "hi"}'], "turns is not a list of texts"),
        ((), ['{"id": "a", "turns": [1]}'], "turns is not a list of texts"),
        ((), ['{"id": "a", "turns": ["hi"], "images": "x.png"}'], "images is not a list of texts"),
    ],
)
def test_mistakes_in_a_bench_get_one_sentence(words, lines, says, model, capsys, tmp_path):
    suite = tmp_path / "suite.jsonl"
    suite.write_text("\n".join(lines), encoding="utf-8")
    status = main(["bench", "--suite", str(suite), "--model", model, "--budget", "3", *words])
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_bench_without_plain_decoding_claims_no_identity(model, capsys, tmp_path):
    suite = tmp_path / "suite.jsonl"
    suite.write_text('{"id": "a", "turns": ["hi"]}', encoding="utf-8")
    words = ("--decoders", "token_recycling", "--max-new-tokens", "4")
    assert main(["bench", "--suite", str(suite), "--model", model, *words]) == 0
    assert capsys.readouterr().out.rstrip().endswith("| - |")


def test_half_a_character_in_a_question_is_no_error(model, capsys):
    words = ("--model", model, "--max-new-tokens", "2", "--budget", "1")
    assert run(capsys, "what is \udcff?", *words)[0] == 0


def test_module_entry_and_help():
    done = subprocess.run(
        [sys.executable, "-m", "recap", "--help"], capture_output=True, text=True, check=True
    )
    assert "ask" in done.stdout
    assert "bench" in done.stdout


def test_pass_cost_prints_the_curve(model, capsys):
    assert pass_cost.main(["--model", model, "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[5].startswith("| 1 |")
    assert lines[5].split("|")[3].strip() == "1.00"
    assert pass_cost.main(["--model", "./nowhere"]) == 2
