"""The benchmark: what it measures, what it writes down, what it reads, and other libraries next to it."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recap import Conversation, make_drafter, stream
from recap.bench import overhead, peers, run
from recap.bench.ablations import ABLATIONS, StaticTreeDrafter, comparison
from recap.bench.bootstrap import interval
from recap.bench.figures import Answers, figures, groups, table
from recap.bench.formats import FORMATS
from recap.bench.record import Record
from recap.bench.report import page
from recap.bench.runners import EngineRunner, Outcome, Pass
from recap.bench.samples import Sample
from recap.bench.suffix import SuffixDrafter
from recap.bench.suites import load_suite
from recap.cli import main
from recap.drafters.recap.config import RecapConfig
from recap.targets import load_target

from . import tiny
from .scripted import ScriptedTarget

SAMPLES = [
    Sample("a", ("3 4 5 6 3 4", "7 8"), kind="x"),
    Sample("b", ("9 3 4 5",), kind="y"),
    Sample("c", ("5 6 3 4 2 2",), kind="x"),
    Sample("d", ("3 4 5 6 3 4",), kind="y"),
]
DECODERS = ("recap", "token_recycling", "prompt_lookup", "autoregressive")


def runners(target, names=DECODERS):
    return {n: EngineRunner(make_drafter(n, vocab_size=target.vocab_size)) for n in names}


def measured(target=None, samples=SAMPLES, **settings):
    target = target or ScriptedTarget(vocab_size=16, order=1, eos=False)
    used = settings.pop("runners", None) or runners(target)
    return run.run_suite(target, samples, used, max_new_tokens=60, **settings)


def key(answer):
    return answer["sample"], answer["turn"], answer["repeat"], answer["decoder"]


# ---- what is measured


def test_the_result_has_the_agreed_shape():
    result = measured()
    assert {"model", "device", "dtype", "threads", "decoders", "samples"} <= set(result)
    for name, decoder in result["decoders"].items():
        assert set(decoder) >= {
            *("tokens", "passes", "tokens_per_pass", "decode_tokens_per_s", "speedup"),
            *("identical", "first_difference", "draft_ms", "verify_ms", "observe_ms", "sources"),
        }
        rows = [r for r in result["samples"] if r["decoder"] == name]
        assert decoder["passes"] == sum(r["passes"] for r in rows)
        assert decoder["tokens"] == sum(r["tokens"] - 1 for r in rows), "the prefill's token apart"
        assert decoder["identical"] is True
        assert len(rows) == 5, "four samples, one of them with two turns"
    assert result["decoders"]["autoregressive"]["tokens_per_pass"] == 1.0
    assert result["decoders"]["autoregressive"]["speedup"] == 1.0
    json.dumps(result, allow_nan=False)


class Watching(EngineRunner):
    """Notes when it is called."""

    def __init__(self, name, target, calls):
        super().__init__(make_drafter("autoregressive", vocab_size=target.vocab_size))
        self.name, self.calls = name, calls

    def answer(self, conversation, max_new_tokens):
        self.calls.append((self.name, max_new_tokens))
        return super().answer(conversation, max_new_tokens)


def test_the_order_of_decoders_rotates_after_a_warm_up():
    target, calls = ScriptedTarget(vocab_size=16, eos=False), []
    names = ("p", "q", "autoregressive")
    used = {n: Watching(n, target, calls) for n in names}
    run.run_suite(target, SAMPLES[1:], used, max_new_tokens=9, repeats=2)
    assert [n for n, limit in calls if limit == run.WARM_UP] == list(names)
    order = [n for n, limit in calls if limit == 9]
    firsts = order[::3]
    assert firsts == ["p", "q", "autoregressive", "q", "autoregressive", "p"]
    assert all(set(order[i : i + 3]) == set(names) for i in range(0, len(order), 3))


def test_every_repeat_starts_with_empty_memories_and_times_are_medians():
    record = Record(None)
    result = measured(repeats=3, record=record)
    one, two, three = (
        [(*key(a)[:2], a["decoder"], a["passes"]) for a in record.answers if a["repeat"] == n]
        for n in range(3)
    )
    assert one == two == three
    assert result["decoders"]["recap"]["answers"] == 5, "repeats of one answer count once"
    rows = [
        {"sample": "a", "turn": 0, "tokens": 11, "prefill_tokens": 1, "passes": 5, "decode_s": s}
        for s in (9.0, 1.0, 2.0)
    ]
    assert Answers(rows).sums() == {"a": (10, 5, 2.0)}


def test_a_cold_decoder_forgets_before_every_answer():
    target = ScriptedTarget(vocab_size=40, order=2, eos=False)
    used = runners(target, ("recap", "autoregressive"))
    used["cold"] = EngineRunner(make_drafter("recap", vocab_size=40), cold=True)
    result = measured(target, [SAMPLES[0], SAMPLES[3], SAMPLES[3]], runners=used)
    cold, warm = (
        [a["passes"] for a in result["samples"] if (a["decoder"], a["sample"]) == (name, "d")]
        for name in ("cold", "recap")
    )
    assert cold[0] == cold[1]
    assert warm[1] < cold[1]


class Liar(EngineRunner):
    """Plain decoding that takes the second best token at one position."""

    def __init__(self, target, index):
        super().__init__(make_drafter("autoregressive", vocab_size=target.vocab_size))
        self.target, self.index = target, index

    def answer(self, conversation, max_new_tokens):
        o = super().answer(conversation, max_new_tokens)
        ids = list(o.token_ids)
        logits = self.target.logits([*conversation.ids, *ids[: self.index]])
        ids[self.index] = int(logits.argsort()[-2])
        return Outcome(tuple(ids), o.text, o.prefill_s, o.decode_s, o.passes, fork=o.fork)


def test_the_first_difference_is_reported_with_its_margin():
    target = ScriptedTarget(vocab_size=16, order=3, eos=False)
    used = {"liar": Liar(target, 5), **runners(target, ("autoregressive",))}
    result = measured(target, SAMPLES[1:], runners=used)
    liar = result["decoders"]["liar"]
    assert liar["identical"] is False
    assert liar["match_ratio"] == 0.0
    assert "0% of answers" in table(result).markdown()
    prompt = [9, 3, 4, 5]
    best, second = sorted(target.logits([*prompt, *target.greedy(prompt, 5)]))[::-1][:2]
    assert liar["first_difference"]["token"] == 5
    assert liar["first_difference"]["margin"] == pytest.approx(best - second, abs=1e-3)


class Broken:
    """Another library's decoder that cannot do it."""

    top_k = 0

    def refuses(self, conversation):
        return "it is closed" if conversation.ids[0] == 9 else None

    def answer(self, conversation, max_new_tokens):
        if conversation.ids[0] == 5:
            raise ZeroDivisionError("oh")
        return Outcome((2, 3), "", 0.1, 0.2, (Pass(0, 1),))

    def reset(self):
        pass


def test_a_peer_that_fails_costs_nobody_else_a_sample():
    target = ScriptedTarget(vocab_size=16, order=1, eos=False)
    used = {"other": Broken(), **runners(target, ("recap", "autoregressive"))}
    result = measured(target, SAMPLES[1:], runners=used)
    failed = {f["sample"]: f["error"] for f in result["failed"]}
    assert failed == {"b": "it is closed", "c": "ZeroDivisionError: oh"}
    assert {f["decoder"] for f in result["failed"]} == {"other"}
    assert result["decoders"]["other"]["answers"] == 1
    assert result["decoders"]["recap"]["answers"] == 3


def test_speed_is_compared_over_the_answers_that_both_have():
    def row(decoder, turn, seconds):
        lists = {"first_difference": None, "steps": [], "sources": {}}
        counts = {"sample": "a", "tokens": 11, "prefill_tokens": 1, "passes": 10, "prefill_s": 0.1}
        return {"decoder": decoder, "turn": turn, "decode_s": seconds} | lists | counts

    plain = [row("autoregressive", 0, 1.0), row("autoregressive", 1, 100.0)]
    got = figures([*plain, row("other", 0, 0.5)], ("other", "autoregressive"))
    assert got["other"]["speedup"] == 2.0


def test_a_failing_sample_is_left_out_for_all_and_named():
    bad = Sample("bad", ("3 4", "no number"))
    result = measured(samples=[SAMPLES[1], bad])
    assert [(f["sample"], f["error"]) for f in result["failed"]] == [
        ("bad", "Type numbers, separated by blanks.")
    ]
    assert {r["sample"] for r in result["samples"]} == {"b"}
    assert result["samples_run"] == 1


def test_groups_tell_topics_and_multi_turn_apart():
    result = measured()
    assert set(result["groups"]) == {"topic: x", "topic: y", "single-turn", "multi-turn"}
    assert result["groups"]["multi-turn"]["recap"]["answers"] == 2
    assert result["groups"]["single-turn"]["recap"]["answers"] == 3
    assert groups([], DECODERS) == {}
    assert figures([], ("recap",))["recap"]["answers"] == 0


# ---- interrupted and resumed


class Stopping(EngineRunner):
    """Recap, interrupted in the middle of its n-th answer."""

    left = None

    def answer(self, conversation, max_new_tokens):
        if Stopping.left is not None:
            Stopping.left -= 1
            if Stopping.left < 0:
                super().answer(conversation, 9)
                raise KeyboardInterrupt
        return super().answer(conversation, max_new_tokens)


@pytest.mark.parametrize("after", [3, 5, 8, 9])
def test_a_resumed_run_keeps_what_it_has_and_measures_the_rest(tmp_path, after):
    path = tmp_path / "r.ndjson"

    def go(resume=False):
        target = ScriptedTarget(vocab_size=16, order=1, eos=False)
        drafter = make_drafter("recap", vocab_size=16)
        used = {"recap": Stopping(drafter), **runners(target, DECODERS[1:])}
        record = Record(path, settings={"n": 60}, resume=resume)
        return run.run_suite(target, SAMPLES, used, max_new_tokens=60, repeats=2, record=record)

    Stopping.left = None
    whole = go()
    Stopping.left = after
    with pytest.raises(KeyboardInterrupt):
        go()
    Stopping.left = None
    path.write_text(path.read_text() + '{"cut o')  # and then the machine went down
    kept = path.read_text().splitlines()
    result = go(resume=True)
    head, *lines, end = map(json.loads, path.read_text().splitlines())
    (done,) = head["resumed_at"]
    assert result["resumed_at"] == [done]
    assert end == {"complete": True}
    samples = list(dict.fromkeys((a["repeat"], a["sample"]) for a in lines))[:done]
    whole_ones = [a for a in lines if (a["repeat"], a["sample"]) in samples]
    assert [json.loads(line) for line in kept[1 : 1 + len(whole_ones)]] == whole_ones
    assert done == max(
        0, len({(a["repeat"], a["sample"]) for a in map(json.loads, kept[1:-1])}) - 1
    )
    assert [key(a) for a in lines] == [key(a) for a in whole["samples"]]
    assert all(f["identical"] for f in result["decoders"].values())
    with pytest.raises(ValueError, match="nothing to resume"):
        Record(path, settings={"n": 60}, resume=True)


def test_a_run_is_not_resumed_with_other_settings_nor_overwritten(tmp_path):
    path = tmp_path / "r.ndjson"
    record = Record(path, settings={"limit": 3})
    record.peers = {"x": {"setting": {"n": 1}}}
    for sample in "ab":
        record.add([{"sample": sample, "repeat": 0}] * 2)
    with pytest.raises(ValueError, match="another setting of limit"):
        Record(path, settings={"limit": 4}, resume=True)
    with pytest.raises(ValueError, match="interrupted run: continue it with --resume"):
        Record(path, settings={"limit": 3})
    again = Record(path, settings={"limit": 3}, resume=True)
    assert (again.done, again.peers, again.resumed_at) == (1, record.peers, [1])
    assert [a["sample"] for a in again.answers] == ["a", "a"], "b may be half a sample"
    with pytest.raises(ValueError, match="nothing to resume"):
        Record(tmp_path / "other.ndjson", resume=True)


# ---- other libraries


@pytest.fixture(scope="module", params=["llama", "qwen2_5_vl", "llava_next"])
def target(request, tmp_path_factory):
    return load_target(str(tiny.build(request.param, tmp_path_factory.mktemp(request.param))))


@pytest.mark.parametrize("name", peers.PEERS)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_peers_give_the_plain_tokens_over_two_turns(name, target):
    if peers.PEERS[name].missing():
        pytest.skip(f"{peers.PEERS[name].package} is not installed")
    conversation = Conversation(target)
    images = [tiny.picture(90, 70)] if target.sees_images else []
    plain = runners(target, ("autoregressive",))["autoregressive"]
    for question in ("what is the red square? the red square", "and the total?"):
        conversation.ask(question, images)
        conversation.prefill(seed=True, top_k=8)
        runner, about = peers.tune(target, name, [conversation])
        if runner is None:
            assert about["status"] == "skipped: it reads text models only"
            assert name == "flashspec_ngram"
            assert target.sees_images
            return
        assert not [one for one in about.get("sweep", []) if "error" in one]
        expected = plain.answer(conversation, 40)
        outcome = runner.answer(conversation, 40)
        assert outcome.token_ids == expected.token_ids
        given = outcome.prefill_tokens + sum(p.emitted for p in outcome.passes)
        assert given >= len(outcome.token_ids), "every token belongs to a pass"
        assert outcome.decode_s > 0
        assert conversation.answer_ids == (), "the conversation did not move"
        conversation.adopt(expected.fork)
        images = []


def test_peers_run_on_the_output_layer_of_our_engine(target, monkeypatch):
    conversation = Conversation(target)
    conversation.ask("what is the red square?")
    conversation.prefill(seed=True, top_k=8)
    layer, seen = target.output_layer, []
    own = target.model.get_output_embeddings()
    assert layer is not own
    assert type(layer).__name__ == "PackedLinear"
    hook = layer.register_forward_hook(lambda *_: seen.append(1))
    try:
        outcome = peers.GenerateRunner(target).answer(conversation, 5)
        assert len(seen) == len(outcome.passes) + 1, "each pass of generate, and its prefill"
        monkeypatch.setattr(target.model, "generate", lambda **_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            peers.GenerateRunner(target).answer(conversation, 5)
    finally:
        hook.remove()
    assert target.model.get_output_embeddings() is own, "restored, whatever happens"


def test_missing_libraries_are_named(monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    runner, about = peers.tune(None, "flashspec_ngram", [])
    assert runner is None
    assert about == {"status": "not installed (pip install flashspec)"}


def test_the_fastest_setting_is_the_one_measured(monkeypatch):
    class Timed(peers.PeerRunner):
        def answer(self, conversation, max_new_tokens):
            if self.setting["n"] == 3:
                raise RuntimeError("no such kernel\nsecond line")
            return Outcome((1,) * 11, "", 0.1, abs(2 - self.setting["n"]) + 1.0, ())

    settings = tuple({"n": n} for n in (0, 2, 3, 5))
    monkeypatch.setitem(peers.PEERS, "timed", peers.Peer("torch", "torch", Timed, settings))
    runner, about = peers.tune(None, "timed", [None])
    assert runner.setting == about["setting"] == {"n": 2}
    assert about["sweep"] == [
        {"setting": {"n": 0}, "tokens_per_s": 3.33},
        {"setting": {"n": 2}, "tokens_per_s": 10.0},
        {"setting": {"n": 3}, "error": "RuntimeError: no such kernel"},
        {"setting": {"n": 5}, "tokens_per_s": 2.5},
    ]


def test_suffix_decoding_profits_from_earlier_answers():
    pytest.importorskip("arctic_inference.suffix_decoding")
    target = ScriptedTarget(vocab_size=16, order=1, eos=False)
    runner = EngineRunner(SuffixDrafter(tokens=8, factor=2.0))
    questions = run.first_questions(target, SAMPLES, 4, {"x": runner})
    alone = runner.answer(questions[3], 60)
    runner.reset()
    warm = [runner.answer(question, 60) for question in questions][3]
    assert len(warm.passes) < len(alone.passes)
    assert list(warm.token_ids) == target.greedy([3, 4, 5, 6, 3, 4], 60)


# ---- ablations


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_change_no_token(name):
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    ablation = ABLATIONS[name]
    config = RecapConfig(**({"budget": 20} | ablation.config))
    runner = EngineRunner(ablation.drafter(16, config=config), cold=ablation.cold)
    used = {name: runner, **runners(target, ("autoregressive",))}
    result = measured(target, runners=used)
    assert result["decoders"][name]["identical"] is True
    assert result["decoders"][name]["tokens_per_pass"] > 1.0


def recorded_trees(drafter, target, passes=60):
    """The recorded steps of an answer."""
    conversation = Conversation(target)
    conversation.ask("3 4 5 6 3 4")
    return list(stream(conversation, drafter, max_new_tokens=passes, record=True))


def test_strict_back_off_asks_shorter_keys_only_where_longer_ones_are_silent():
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)

    def mixed_in(config):
        config = RecapConfig(**({"lookup": False, "budget": 40} | config))
        steps = recorded_trees(make_drafter("recap", vocab_size=16, config=config), target)
        sources = ("3-token", "2-token", "1-token")
        count = 0
        for node in (n for step in steps for n in step.nodes if n.contributions):
            answered = [v for s in sources for v in node.contributions if v[0] == s]
            count += bool(answered) and answered[0][2] == 0.0
        return count

    assert mixed_in(ABLATIONS["strict back-off"].config) == 0
    assert mixed_in({}) > 0, "the mixture does otherwise"


def test_the_static_tree_keeps_its_shape_and_sources():
    target = ScriptedTarget(vocab_size=30, order=1, eos=False)
    steps = recorded_trees(StaticTreeDrafter(30, config=RecapConfig(budget=80)), target)
    assert max(step.packed_tokens for step in steps) <= 81
    assert max(step.packed_tokens for step in steps) > 40
    for step in steps:
        ranks = [sum(n.parent == node for n in step.nodes[1:]) for node in range(len(step.nodes))]
        assert ranks[0] <= 8
        assert max(n.depth for n in step.nodes) <= 6
    assert sum(step.sources["1-token"].accepted for step in steps) > 0


def test_ablations_are_compared_in_pairs():
    def row(sample, decoder, tokens, passes):
        counts = {"tokens": tokens, "prefill_tokens": 0, "passes": passes}
        return {"sample": sample, "decoder": decoder, "decode_s": float(passes)} | counts

    rows = []
    for sample, tokens in (("a", 10), ("b", 40), ("c", 90)):  # very unlike each other
        rows += [row(sample, "recap", tokens, 10), row(sample, "without lookup", tokens, 20)]
    got = comparison(rows)["without lookup"]["tokens_per_pass"]
    assert got == {"ratio": 0.5, "ratio_95": [0.5, 0.5]}


def test_ablations_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RECAP_CACHE", str(tmp_path))
    model = str(tiny.build("llama", tmp_path / "model"))
    suite = tmp_path / "s.jsonl"
    suite.write_text('{"id": "a", "question": "hi"}\n{"id": "b", "turns": ["hello", "you"]}')
    out = tmp_path / "r.json"
    words = ("--budget", "7", "--max-new-tokens", "6", "--out", str(out), "--ablations")
    assert main(["bench", "--suite", str(suite), "--model", model, *words]) == 0
    data = json.loads(out.read_text())
    assert set(data["ablations"]) == set(ABLATIONS)
    assert set(data["decoders"]) == {*ABLATIONS, "autoregressive"}
    assert "| strict back-off |" in capsys.readouterr().out


# ---- the page


def test_the_report_is_one_file_that_needs_no_network():
    text = page(measured(), ["peer other: not installed (pip install <other>)"])
    assert not re.findall(r"(?:src|href|url|@import|<script)", text)
    assert "pip install &lt;other&gt;" in text
    assert text.count('class="bar"') == 2 * len(DECODERS), "tokens per pass and speed"
    for part in (*DECODERS, "3-token", "single-turn", "a, turn 2"):
        assert f"<td>{part}</td>" in text


def test_bench_writes_figures_answers_and_page(tmp_path, capsys):
    model = str(tiny.build("llama", tmp_path / "model"))
    suite = tmp_path / "s.jsonl"
    suite.write_text('{"id": "a", "question": "hi", "topic": "t"}')
    out, html = tmp_path / "sub" / "r.json", tmp_path / "r.html"
    words = ["bench", "--suite", str(suite), "--model", model, "--max-new-tokens", "6"]
    words += ["--budget", "3", "--out", str(out), "--report", str(html)]
    assert main(words) == 0
    assert json.loads(out.read_text())["samples"][0]["kind"] == "t"
    answers = [json.loads(line) for line in out.with_suffix(".ndjson").read_text().splitlines()]
    assert len(answers) == 6, "settings, four answers, the end"
    assert answers[1]["steps"]
    assert html.read_text().startswith("<!doctype html>")
    assert main([*words, "--resume"]) == 2
    assert "nothing to resume" in capsys.readouterr().err
    assert main([*words[:5], "--resume"]) == 2
    assert "--resume needs the --out" in capsys.readouterr().err
    assert main([*words, "--decoders", "fast"]) == 2
    assert "Unknown decoder “fast”" in capsys.readouterr().err
    assert main([*words, "--decoders", "transformers_greedy"]) == 2
    assert "needs one of ours" in capsys.readouterr().err


def test_several_models_and_suites_make_a_run_each(tmp_path, capsys):
    models = [str(tiny.build("llama", tmp_path / name, seed=n)) for n, name in enumerate("pq")]
    suites = []
    for name in ("one", "two"):
        suites.append(str(tmp_path / f"{name}.jsonl"))
        Path(suites[-1]).write_text('{"id": "a", "question": "hi"}')
    words = ["bench", "--suite", ",".join(suites), "--model", ",".join(models)]
    words += ["--max-new-tokens", "4", "--budget", "3", "--out", str(tmp_path / "r.json")]
    assert main(words) == 0
    made = sorted(tmp_path.glob("r*.json"))
    assert [f.name for f in made] == [f"r-{m}-{s}.json" for m in "pq" for s in ("one", "two")]
    assert json.loads(made[3].read_text())["model"] == models[1]
    made[2].unlink()
    before = made[3].read_text()
    capsys.readouterr()
    assert main([*words, "--resume"]) == 0
    assert capsys.readouterr().out.count("complete: ") == 3
    assert made[2].is_file(), "what had not begun is run"
    assert made[3].read_text() == before


# ---- published formats


def png(colour="red"):
    buffer = io.BytesIO()
    Image.new("RGB", (30, 20), colour).save(buffer, "PNG")
    return buffer.getvalue()


Q = {"question": "What brand?"}
JSON = {  # data set: the authors' JSON, and where the image is
    "textvqa": ({"data": [Q | {"question_id": 7, "image_id": "ab", "answers": ["x"]}]}, "train_images/ab.jpg"),
    "chartqa": ([{"imgname": "c.png", "query": "What brand?", "label": "3"}], "png/c.png"),
    "ocrbench": ([Q | {"id": 7, "image_path": "I/1.png", "type": "Regular"}], "OCRBench_Images/I/1.png"),
    "mathvista": ({"7": Q | {"pid": "7", "image": "images/7.jpg", "choices": ["one", "two"]}}, "images/7.jpg"),
    "scienceqa": (
        {"7": Q | {"choices": ["one", "two"], "hint": "", "image": "i.png", "split": "test", "topic": "t"}},
        "test/7/i.png",
    ),
    "seedbench": (
        {"questions": [Q | {"question_id": "7", "choice_a": "one", "choice_b": "two", "data_id": "9_4"}]},
        "SEED-Bench-image/9_4",
    ),
    "coco": ({"images": [{"id": 7, "file_name": "C_07.jpg"}], "annotations": []}, "val2014/C_07.jpg"),
    "gqa": ({"7": Q | {"imageId": "n5", "answer": "no"}}, "images/n5.jpg"),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_the_authors_json(name, tmp_path):
    data, image = JSON[name]
    (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / image).write_bytes(png())
    (tmp_path / "set.json").write_text(json.dumps(data))
    (sample,) = load_suite(f"{name}:{tmp_path / 'set.json'}")
    assert [p.size for p in sample.open_images()] == [(30, 20)]
    if name != "coco":
        assert sample.turns[0].splitlines()[0] == "What brand?"
    if name in ("mathvista", "scienceqa", "seedbench"):
        assert sample.turns[0].splitlines()[1:] == ["A. one", "B. two"]
    assert "None" not in sample.id


def test_images_that_are_not_there(tmp_path):
    data = {"7": {"question": "Why?", "choices": ["a"], "image": None, "split": "test"}}
    (tmp_path / "problems.json").write_text(json.dumps(data))
    (sample,) = load_suite(f"scienceqa:{tmp_path / 'problems.json'}")
    assert sample.images == (), "a question without an image stays a text question"
    (tmp_path / "q.json").write_text(json.dumps({"7": {"imageId": "n5", "question": "Q"}}))
    (sample,) = load_suite(f"gqa:{tmp_path / 'q.json'}")
    with pytest.raises(ValueError, match=r"“n5\.jpg” cannot be read"):
        sample.open_images()
    with pytest.raises(ValueError, match="“the image of sample x” is not an image"):
        Sample("x", ("q",), (b"no image",)).open_images()


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_with_images_inside(name, tmp_path):
    image = base64.b64encode(png()).decode()
    rows = [
        ("index", "image", "question", "hint", "A", "B", "category", "image_path"),
        ("0", image, "What brand?", "Look.", "one", "two", "k", "x.jpg"),
        ("1", "0", "And this?", "", "", "", "k", "x.jpg"),
    ]
    file = tmp_path / "set.tsv"
    file.write_text("\n".join("\t".join(row) for row in rows))
    first, second = load_suite(f"{name}:{file}")
    assert [p.size for s in (first, second) for p in s.open_images()] == [(30, 20)] * 2
    if name != "coco":
        assert first.turns == ("Look.\nWhat brand?\nA. one\nB. two",)
        assert second.turns == ("And this?",)
    assert len(load_suite(f"{name}:{file}", 1)) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_parquet_with_images_inside(name, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    row = Q | {"question_id": "7", "image": {"bytes": png(), "path": "x.png"}}
    if name == "mathvista":
        row |= {"image": "images/7.jpg", "decoded_image": row["image"]}
    if name == "seedbench":
        row |= {"image": [row["image"], row["image"]]}
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "test-0.parquet")
    for where in (tmp_path, tmp_path / "test-0.parquet"):
        (sample,) = load_suite(f"{name}:{where}")
        assert len(sample.open_images()) == (2 if name == "seedbench" else 1)


def test_samples_with_one_id_stay_apart(tmp_path):
    file = tmp_path / "s.jsonl"
    file.write_text("\n".join(['{"id": "a", "question": "hi"}'] * 3))
    assert [s.id for s in load_suite(str(file))] == ["a", "a#2", "a#3"]


def test_mme_as_its_authors_publish_it(tmp_path):
    for folder, images in (("OCR", "OCR"), ("posters/questions_answers_YN", "posters/images")):
        for place in (folder, images):
            (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "0001.txt").write_text("Is it red?\tYes\nIs it blue?\tNo\n")
        (tmp_path / images / "0001.png").write_bytes(png())
    samples = load_suite(f"mme:{tmp_path}")
    assert [s.turns[0] for s in samples] == ["Is it red?", "Is it blue?"] * 2
    assert {s.kind for s in samples} == {"OCR", "posters"}
    assert all(len(s.open_images()) == 1 for s in samples)


@pytest.mark.parametrize(
    ("name", "file", "content", "says"),
    [
        ("gqa", "x.json", "{", "x.json is not JSON"),
        ("gqa", "x.json", "[3]", "Row 1 of x.json is no sample: it is not a JSON object."),
        ("gqa", "x.json", '[{"imageId": "1"}]', "no 'question'"),
        ("gqa", "x.json", "[]", "x.json has no samples"),
        ("gqa", "x.parquet", "no", "cannot be read as parquet"),
        ("gqa", "x.tsv", "question\timage\nq\t" + "?" * 99, "its image is not base64"),
        ("gqa", "none.tsv", None, "cannot be read: No such file"),
        ("mme", "", None, "has no samples"),
    ],
)
def test_mistakes_in_a_data_set_get_one_sentence(name, file, content, says, tmp_path, capsys):
    if file.endswith("parquet"):
        pytest.importorskip("pyarrow")
    if content is not None:
        (tmp_path / file).write_text(content)
    assert main(["bench", "--suite", f"{name}:{tmp_path / file}"]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_the_bootstrap_follows_the_spread():
    def mean(total, count):
        return total / count

    rng = np.random.default_rng(0)
    few, many = rng.normal(5, 1, 20), rng.normal(5, 1, 2000)
    wide, narrow = (interval(mean, v, np.ones(len(v))) for v in (few, many))
    assert narrow[0] < 5.05
    assert narrow[1] > 4.95
    assert 5 < (wide[1] - wide[0]) / (narrow[1] - narrow[0]) < 20, "about the root of 100"
    assert interval(mean, [1.0], [1.0]) is None


# ---- what drafting costs


@pytest.mark.slow
def test_memories_stay_within_their_sizes_at_a_real_vocabulary():
    sizes = overhead.memory_sizes(vocab=151_936, config=RecapConfig())
    limits = overhead.LIMITS_MB
    assert 151_936 * 8 * 8 / 1e6 < sizes["persistent_mb"] <= limits["persistent_mb"] == 32.0
    assert 65_536 * 84 / 1e6 < sizes["request_mb"] <= limits["request_mb"] == 50.0


def test_memories_are_bounded_by_the_config():
    def sizes(vocab, capacity):
        return overhead.memory_sizes(vocab=vocab, config=RecapConfig(request_capacity=capacity))

    small, large = (sizes(30_000, capacity)["request_mb"] for capacity in (1000, 8000))
    assert 68 < 1e6 * (large - small) / 7000 < 600, "arrays, keys and their tables"
    narrow, wide = (sizes(vocab, 1000)["persistent_mb"] for vocab in (30_000, 60_000))
    assert 1.7 < wide / narrow < 2.1, "the vocabulary bounds the persistent one"


def test_overhead_reports_times_and_what_is_above_its_limit(capsys, monkeypatch):
    small = RecapConfig(budget=63, request_capacity=1000)
    monkeypatch.setattr(overhead, "RecapConfig", lambda **_: small)
    words = ["--vocab", "3000", "--nodes", "7", "--steps", "3"]
    assert overhead.main(words) == 0
    times = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one.get("decoder") for one in times[::2]] == ["recap", "token_recycling", None]
    assert all(one["both_ms"] > 0 for one in times[:4])
    assert times[0]["packed_tokens"] == 64
    monkeypatch.setitem(overhead.LIMITS_MB, "persistent_mb", 0.1)
    assert overhead.main(words) == 1
    assert "persistent_mb is 0.2, above 0.1" in capsys.readouterr().err


MMSPEC = Path(__file__).parents[2] / "shared" / "data" / "mmspec_testmini"


@pytest.mark.skipif(not MMSPEC.is_dir(), reason="MMSpec's testmini split is not on this machine")
def test_mmspec_runs_through_with_every_image_and_turn(tmp_path):
    samples = load_suite(str(MMSPEC))
    assert len(samples) == 60
    assert len({s.kind for s in samples}) == 6
    target = load_target(str(tiny.build("llava_next", tmp_path)))
    used = runners(target, ("recap", "autoregressive"))
    result = run.run_suite(target, samples, used, max_new_tokens=3)
    assert result["failed"] == []
    assert result["samples_run"] == 60
    played = {(r["sample"], r["turn"]) for r in result["samples"]}
    assert played == {(s.id, turn) for s in samples for turn in range(len(s.turns))}
    assert result["decoders"]["recap"]["identical"] is True
    assert len(result["groups"]) == 8, "six topics, single-turn and multi-turn"
