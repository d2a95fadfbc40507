"""The pass-cost command: shapes with random weights, fixed-shape passes, the weight-streaming limit."""

import json
from pathlib import Path

import pytest
import torch

from recap.bench import pass_cost
from recap.bench.shapes import random_target, read_config, weight_bytes
from recap.drafters.recap.tree_size import PassCost
from recap.targets import load_target
from recap.targets.captured import StaticPass

from . import tiny

HUB = Path(__file__).parents[2] / "shared" / "data" / "hub_layouts" / "qwen2.5-vl-7b-instruct"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A config.json in the published form."""
    where = tmp_path_factory.mktemp("hub")
    tiny.build_hub_qwen(where)
    return where


@pytest.mark.parametrize("packed", [True, False])
def test_the_weights_that_a_pass_reads_are_all_but_the_embedding(packed, tmp_path):
    target = load_target(str(tiny.build("llama", tmp_path)), packed=packed)
    plain = load_target(str(tmp_path), packed=False).model
    everything = sum(p.nbytes for p in plain.parameters())
    assert weight_bytes(target) == everything - plain.get_input_embeddings().weight.nbytes


@pytest.mark.skipif(not HUB.is_dir(), reason="the published configuration is not on this machine")
def test_the_published_shape_streams_fourteen_gigabytes():
    target = random_target(read_config(HUB), device="meta", dtype="bfloat16", name="x")
    hidden, wide, layers, vocab, width, kv = 3584, 18944, 28, 152064, 128, 4
    attention = (
        2 * hidden * hidden + 2 * hidden * kv * width + hidden + 2 * kv * width
    )  # and biases
    layer = attention + 3 * hidden * wide + 2 * hidden  # and norms
    assert weight_bytes(target) == 2 * (layers * layer + hidden + vocab * hidden)


def test_a_scaled_shape_keeps_the_width_of_its_heads(config):
    whole, small = read_config(config), read_config(config, 2)
    assert whole.get_text_config().hidden_size == 64
    text = small.get_text_config()
    assert text.hidden_size // text.num_attention_heads == 16
    assert text.hidden_size == 32
    target = random_target(small, device="cpu", dtype="bfloat16", name="half")
    assert (target.dtype, target.device) == ("bfloat16", "cpu")
    report = pass_cost.measure(target, rows=[1, 3], context=20, bytes_per_s=1e9, fixed=True)
    assert [p["rows"] for p in report["points"]] == [1, 3]
    assert all(p["fixed_ms"] > 0 for p in report["points"])


def test_both_ways_of_a_pass_are_timed_and_the_target_keeps_its_own(config, monkeypatch):
    target = random_target(read_config(config), device="cpu", dtype="float32", name="x")
    ways = []

    def noted(target, *, rows, context, far):
        ways.append(target._static)
        return PassCost([(1, 0.5 / len(ways)), (2, 1.0 / len(ways))])

    monkeypatch.setattr(pass_cost, "measure_pass_cost", noted)
    report = pass_cost.measure(target, bytes_per_s=1e9, fixed=True)
    assert ways[0] is None
    assert isinstance(ways[1], StaticPass)
    assert target._static is None
    assert [(p["ms"], p["fixed_ms"]) for p in report["points"]] == [(500, 250), (1000, 500)]


def test_the_report_holds_shares_of_the_limit(config, tmp_path, capsys):
    out = tmp_path / "cost.json"
    words = [
        "--shape",
        str(config),
        "--scale",
        "2",
        "--context",
        "16",
        "--bandwidth",
        "10",
        "--goal",
        "3",
    ]
    assert pass_cost.main([*words, "--fixed", "--threads", "1", "--out", str(out)]) == 0
    data = json.loads(out.read_text())
    assert [p["rows"] for p in data["points"]] == list(pass_cost.ROWS)
    assert data["limit_ms"] == pytest.approx(1e3 * data["weight_bytes"] / 10e9, abs=1e-3)
    limit = 1e3 * data["weight_bytes"] / 10e9
    for point in data["points"]:
        assert point["share_of_limit"] == pytest.approx(limit / point["ms"], abs=2e-4)
        assert point["fixed_share_of_limit"] == pytest.approx(limit / point["fixed_ms"], abs=2e-4)
    assert data["points"][0]["against_one_row"] == 1.0
    assert data["points"][0]["tokens_for_goal"] == 3.0
    for point in data["points"]:
        assert point["tokens_for_goal"] >= 2.99 * point["against_one_row"], "drafting comes on top"
    assert "random weights" in capsys.readouterr().out


def test_bandwidth_is_bytes_by_the_best_time(monkeypatch):
    ticks = iter([0.0, 2.0, 10.0, 10.5, 20.0, 21.0])
    monkeypatch.setattr(pass_cost.time, "perf_counter", lambda: next(ticks))
    assert pass_cost.bandwidth(torch.device("cpu"), megabytes=1, repeats=3) == 1e6 / 0.5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--shape", "nowhere"), "There is no config.json at nowhere."),
        (("--shape", __file__), "is no model's config.json"),
        (("--scale", "0"), "--scale must be at least 1"),
        (("--device", "tpu"), "There is no device tpu here"),
        (("--dtype", "int3"), 'There is no dtype "int3"'),
        (("--context", "0"), "must be above 0"),
        (("--bandwidth", "-1"), "must be above 0"),
        (("--goal", "0"), "must be above 0"),
        (("--out", "/proc/no/x.json"), "cannot be written"),
    ],
)
def test_mistakes_get_one_sentence(words, says, config, capsys):
    assert pass_cost.main(["--shape", str(config), *words]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.strip().splitlines()) == 1
