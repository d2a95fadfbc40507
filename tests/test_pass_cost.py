"""The pass-cost command: shapes with random weights, fixed-shape passes, the weight-streaming limit."""

import json
from pathlib import Path

import pytest
import torch

from recap.bench import pass_cost
from recap.bench.shapes import random_target, read_config, weight_bytes
from recap.targets import load_target

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
    target = random_target(read_config(HUB), device="meta", dtype=torch.bfloat16, name="x")
    hidden, wide, layers, vocab, width, kv = 3584, 18944, 28, 152064, 128, 4
    attention = (
        2 * hidden * hidden + 2 * hidden * kv * width + hidden + 2 * kv * width
    )  # and biases
    layer = attention + 3 * hidden * wide + 2 * hidden  # and norms
    assert weight_bytes(target) == 2 * (layers * layer + hidden + vocab * hidden)


def test_a_random_target_has_the_shape_and_runs_fixed_passes(config):
    made = random_target(
        read_config(config), device="cpu", dtype=torch.bfloat16, name="x", static=True
    )
    assert (made.dtype, made.device) == ("bfloat16", "cpu")
    assert made.passes.endswith("captured")
    report = pass_cost.measure(made, sizes=[1, 3], context=20, bytes_per_s=1e9)
    assert [p["packed_tokens"] for p in report["points"]] == [1, 3]
    assert report["passes"] == made.passes


def test_the_report_holds_shares_of_the_limit(config, tmp_path, capsys):
    out = tmp_path / "cost.json"
    words = ["--shape", str(config), "--context", "16", "--bandwidth", "10", "--goal", "3"]
    assert pass_cost.main([*words, "--threads", "1", "--out", str(out)]) == 0
    data = json.loads(out.read_text())
    assert [p["packed_tokens"] for p in data["points"]] == list(pass_cost.SIZES)
    assert data["limit_ms"] == pytest.approx(1e3 * data["weight_bytes"] / 10e9, abs=1e-3)
    limit = 1e3 * data["weight_bytes"] / 10e9
    for point in data["points"]:
        assert point["share_of_limit"] == pytest.approx(limit / point["ms"], abs=2e-4)
    assert data["points"][0]["against_one"] == 1.0
    assert data["points"][0]["tokens_for_goal"] == 3.0
    for point in data["points"]:
        assert point["tokens_for_goal"] >= 2.99 * point["against_one"], "drafting comes on top"
    assert "random weights" in capsys.readouterr().out


def test_bandwidth_is_bytes_by_the_best_time(monkeypatch):
    ticks = iter([0.0, 2.0, 10.0, 10.5, 20.0, 21.0])
    monkeypatch.setattr(pass_cost.time, "perf_counter", lambda: next(ticks))
    assert pass_cost.bandwidth(torch.device("cpu"), megabytes=1, repeats=3) == 1e6 / 0.5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--shape", "nowhere"), "There is no config.json at nowhere."),
        (("--shape", __file__), "is not a model's config.json"),
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
