"""The loop and the conversation over a scripted target: same tokens, limits, stops, rewinding."""

import pytest

from recap import DECODERS, Conversation, RecapConfig, generate, make_drafter, stream, trace_lines
from recap.drafters.tree import CandidateTree
from recap.trace import SourceCount, parse, start_line

from .scripted import ScriptedTarget

PROMPT = "3 4 5 6 3 4"


def ask(target, text=PROMPT):
    conversation = Conversation(target)
    conversation.ask(text)
    return conversation


def fresh(name, target):
    return make_drafter(name, vocab_size=target.vocab_size)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("order", [1, 2, 3])
def test_same_tokens_as_one_by_one(decoder, seed, order):
    target = ScriptedTarget(vocab_size=16, seed=seed, order=order)
    prompt = [int(t) for t in PROMPT.split()]
    turn = generate(ask(target), fresh(decoder, target), max_new_tokens=120)
    assert list(turn.token_ids) == target.greedy(prompt, 120)
    assert turn.finish_reason == ("eos" if turn.token_ids[-1] == 1 else "length")
    assert turn.tokens <= 120
    if decoder == "autoregressive":
        assert turn.passes == turn.tokens - 1


def test_recap_needs_fewer_passes():
    target = ScriptedTarget(vocab_size=16, order=1, eos=False)
    passes = {
        d: generate(ask(target), fresh(d, target), max_new_tokens=150).passes for d in DECODERS
    }
    assert passes["recap"] < passes["autoregressive"] / 2


@pytest.mark.parametrize("limit", range(1, 12))
@pytest.mark.parametrize("decoder", DECODERS)
def test_never_more_than_max_new_tokens(decoder, limit):
    target = ScriptedTarget(vocab_size=16, order=1, eos=False)
    conversation = ask(target)
    turn = generate(conversation, fresh(decoder, target), max_new_tokens=limit)
    assert turn.tokens == limit
    assert conversation.state.length == len(conversation.ids) - 1, "the last token has no KV yet"


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("seed", range(12))
def test_end_of_answer_inside_a_branch_cuts_there(decoder, seed):
    target = ScriptedTarget(vocab_size=10, seed=seed, order=1)
    conversation = ask(target)
    turn = generate(conversation, fresh(decoder, target), max_new_tokens=300)
    assert 1 not in turn.token_ids[:-1]
    assert conversation.state.length == len(conversation.ids) - 1
    assert conversation.state.cache == conversation.ids[:-1], "the cache holds what was confirmed"


def test_stop_within_one_pass_and_go_on():
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    conversation = ask(target)
    answer = stream(conversation, fresh("recap", target), max_new_tokens=200)
    for step in answer:
        if step.index == 3:
            answer.stop()
    assert answer.turn.passes == 4
    assert answer.turn.finish_reason == "stopped"
    assert conversation.state.cache == conversation.ids[:-1]
    conversation.ask("7 8")
    turn = generate(conversation, fresh("recap", target), max_new_tokens=30)
    assert list(turn.token_ids) == target.greedy(conversation.ids[: -turn.tokens], 30)


def test_leaving_the_loop_keeps_what_was_confirmed():
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    conversation = ask(target)
    answer = stream(conversation, fresh("recap", target), max_new_tokens=200)
    iterator = iter(answer)
    next(iterator)
    next(iterator)
    iterator.close()
    assert answer.turn.passes == 2
    assert not conversation.pending
    assert conversation.messages[-1].text == answer.turn.text


def test_an_answer_left_half_way_does_not_touch_the_next_question():
    """A suspended generator is closed when it is collected: by then another question may be open."""
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    conversation = ask(target)
    left = stream(conversation, fresh("recap", target), max_new_tokens=200)
    steps = iter(left)
    next(steps)
    conversation.ask("7 8")
    steps.close()
    assert conversation.pending
    assert left.turn is None
    turn = generate(conversation, fresh("recap", target), max_new_tokens=20)
    assert list(turn.token_ids) == target.greedy(conversation.ids[:-20], 20)
    assert conversation.messages[-1].text == turn.text


@pytest.mark.parametrize("move", ["ask", "rewind", "undo", "adopt"])
def test_an_answer_does_not_go_on_when_the_conversation_has_moved(move):
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    conversation = ask(target)
    steps = iter(stream(conversation, fresh("recap", target), max_new_tokens=200))
    next(steps)
    if move == "adopt":
        twin = conversation.fork()
        generate(twin, fresh("recap", target), max_new_tokens=3)
        conversation.adopt(twin)
    else:
        getattr(conversation, move)(*["7 8"] * (move == "ask"))
    before = list(conversation.ids)
    with pytest.raises(RuntimeError, match="went on"):
        next(steps)
    assert conversation.ids == before


def test_one_question_is_not_answered_twice_at_once():
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    conversation = ask(target)
    first, second = (stream(conversation, fresh("recap", target)) for _ in range(2))
    steps = iter(first)
    next(steps)
    for late in (second, stream(conversation, fresh("recap", target))):
        with pytest.raises(RuntimeError, match="rewind"):
            next(iter(late))
    conversation.rewind()
    turn = generate(conversation, fresh("recap", target), max_new_tokens=20)
    assert list(turn.token_ids) == target.greedy(conversation.ids[:-20], 20)


class Breaks:
    """Raises MemoryError at one call of a method, counted from 1; before it runs, or after."""

    def __init__(self, owner, method: str, at: int, *, after: bool = False) -> None:
        self.real, self.at, self.after, self.calls = getattr(owner, method), at, after, 0
        setattr(owner, method, self)

    def __call__(self, *args, **more):
        self.calls += 1
        if self.calls == self.at and not self.after:
            raise MemoryError
        result = self.real(*args, **more)
        if self.calls == self.at:
            raise MemoryError
        return result


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("decoder", ["recap", "token_recycling", "autoregressive"])
@pytest.mark.parametrize(
    "method", ["prefill", "begin", "propose", "verify", "compact", "observe", "confirm"]
)
def test_an_error_at_any_call_leaves_tokens_cache_and_turn_in_agreement(method, decoder, after):
    """The next answers, by the same drafter, equal those of a conversation that never failed."""
    at = 0
    while True:
        at += 1
        target = ScriptedTarget(vocab_size=16, order=2, eos=False)
        conversation, drafter = ask(target), fresh(decoder, target)
        owner = target if hasattr(target, method) else drafter
        if after and method in ("compact", "prefill"):
            return  # these change the state last, so there is no "after"
        broken = Breaks(owner, method, at, after=after)
        answer = stream(conversation, drafter, max_new_tokens=25)
        try:
            for _ in answer:
                pass
        except MemoryError:
            setattr(owner, method, broken.real)
        else:
            break
        if method == "prefill":
            assert conversation.pending
            assert answer.turn is None
        else:
            assert answer.turn.finish_reason == "failed"
            assert answer.turn.token_ids == conversation.answer_ids
            assert answer.turn.text == conversation.messages[-1].text
            assert answer.turn.tokens >= answer.turn.passes
            assert conversation.state.length == len(conversation.ids) - bool(answer.turn.tokens)
            assert list(answer.turn.token_ids) == target.greedy(
                [int(t) for t in PROMPT.split()], answer.turn.tokens
            )
            conversation.ask("7 8")
        turn = generate(conversation, drafter, max_new_tokens=20)
        assert list(turn.token_ids) == target.greedy(conversation.ids[:-20], 20)
        assert conversation.state.cache == conversation.ids[:-1]
        assert turn.tokens == 20
    assert at > (1 if method in ("prefill", "begin") else 3), "errors were injected"


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_answer_ends_where_the_context_does(decoder):
    target = ScriptedTarget(vocab_size=16, order=1, eos=False)
    target.max_context = 20
    conversation = ask(target)
    turn = generate(conversation, fresh(decoder, target), max_new_tokens=500)
    assert len(conversation.ids) == 20
    assert turn.finish_reason == "length"


def test_a_prefill_serves_drafters_of_other_widths():
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    conversation = ask(target)
    answers = []
    for top_k in (4, 8, 3):
        drafter = make_drafter("recap", vocab_size=16, config=RecapConfig(top_k=top_k))
        answers.append(generate(conversation, drafter, max_new_tokens=20).token_ids)
        conversation.rewind()
    assert answers[0] == answers[1] == answers[2]


def test_should_stop_is_asked_before_each_pass():
    target = ScriptedTarget(vocab_size=16, eos=False)
    answer = stream(
        ask(target), fresh("recap", target), max_new_tokens=50, should_stop=lambda: True
    )
    assert list(answer) == []
    assert answer.turn.tokens == 1, "the prefill's own token is already there"


@pytest.mark.parametrize("decoder", DECODERS)
def test_rewind_answers_the_same_question_again(decoder):
    target = ScriptedTarget(vocab_size=16, order=2)
    conversation = ask(target)
    first = generate(conversation, fresh("autoregressive", target), max_new_tokens=40)
    conversation.ask("9 8 7")
    second = generate(conversation, fresh("autoregressive", target), max_new_tokens=40)
    twin = conversation.fork()
    assert generate(twin, fresh(decoder, target), max_new_tokens=40).token_ids == second.token_ids
    conversation.rewind()
    again = generate(conversation, fresh(decoder, target), max_new_tokens=40)
    assert again.token_ids == second.token_ids
    conversation.undo()
    assert conversation.answer_ids == first.token_ids
    conversation.rewind()  # the question before can be answered again, too
    once_more = generate(conversation, fresh(decoder, target), max_new_tokens=40)
    assert once_more.token_ids == first.token_ids
    conversation.ask("9 8 7")
    assert generate(conversation, fresh(decoder, target), max_new_tokens=40).token_ids == (
        second.token_ids
    )
    assert [m.role for m in conversation.messages] == ["user", "assistant"] * 2


def test_the_next_question_is_encoded_behind_the_answer_that_stands_before_it(monkeypatch):
    """Whether it ended with an end-of-answer token decides whether the template's own is written."""
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    given, real = [], target.encode

    def encode(messages, known, answer):
        given.append((len(messages), tuple(known), answer))
        return real(messages, known, answer)

    monkeypatch.setattr(target, "encode", encode)
    conversation, drafter = ask(target), fresh("recap", target)
    first = generate(conversation, drafter, max_new_tokens=5).token_ids
    conversation.ask("7 8")
    want = given[-1]
    assert want == (3, tuple(conversation.ids[:-2]), first)
    conversation.ask("7 8")  # replaced while open
    assert given[-1] == want
    generate(conversation, drafter, max_new_tokens=9)
    conversation.undo()
    conversation.ask("7 8")
    assert given[-1] == want
    second = generate(conversation, drafter, max_new_tokens=9).token_ids
    conversation.rewind()
    conversation.undo()
    conversation.ask("7 8")
    assert given[-1] == want
    generate(conversation, drafter, max_new_tokens=9)
    conversation.rewind()
    conversation.ask("7 8")  # a question that was rewound and not answered is replaced too
    assert given[-1] == want
    assert generate(conversation, drafter, max_new_tokens=9).token_ids == second
    conversation.ask("9")
    assert given[-1] == (5, tuple(conversation.ids[:-1]), second)


def test_a_bad_question_leaves_the_conversation_as_it_was():
    target = ScriptedTarget(vocab_size=16, order=2)
    conversation = ask(target)
    generate(conversation, fresh("recap", target), max_new_tokens=20)
    before = list(conversation.ids)
    with pytest.raises(ValueError, match="Type numbers"):
        conversation.ask("hello")
    assert conversation.ids == before
    assert not conversation.pending
    conversation.ask("7 8")
    with pytest.raises(ValueError, match="Type numbers"):
        conversation.ask("hello")
    assert conversation.ids == [*before, 7, 8], "the question before it is still open"
    conversation.ask("9")
    assert conversation.ids == [*before, 9], "and is replaced by the next good one"
    assert [m.text for m in conversation.messages[2:]] == ["9"]


def test_without_a_question_there_is_no_answer():
    target = ScriptedTarget()
    with pytest.raises(ValueError, match="ask"):
        stream(Conversation(target), fresh("recap", target))
    with pytest.raises(ValueError, match="at least 1"):
        stream(ask(target), fresh("recap", target), max_new_tokens=0)


def test_levels_of_a_turn_are_the_sum_of_its_steps():
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    answer = stream(ask(target), fresh("recap", target), max_new_tokens=80)
    steps = list(answer)
    for level, total in answer.turn.sources.items():
        summed = sum((s.sources[level] for s in steps), SourceCount())
        assert summed == total
    drafted = sum(len(s.accepted) for s in steps)
    assert drafted + len(steps) == answer.turn.tokens - 1, "each pass adds the target's own token"
    assert answer.turn.decode_s == pytest.approx(sum(s.seconds for s in steps))


def test_recording_off_leaves_no_nodes_and_the_same_tokens():
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    on = stream(ask(target), fresh("recap", target), max_new_tokens=60, record=True)
    off = stream(ask(target), fresh("recap", target), max_new_tokens=60, record=False)
    recorded, bare = list(on), list(off)
    assert all(not s.nodes and not s.texts for s in bare)
    assert [(s.packed_tokens, s.accepted, s.token_ids) for s in recorded] == [
        (s.packed_tokens, s.accepted, s.token_ids) for s in bare
    ]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"type":"start","format":1,"decoder":"recap"}', "has format 1, and format 2 is read"),
        ('{"type":"start","decoder":"recap"}', "has format 1, and format 2 is read here: record"),
        ('{"type":"start","format":9}', "has format 9"),
        ('{"type":"step"}', "its first line is not a start record"),
        ('{"name":"a notebook"}', "not a Recap trace"),
        ("[1, 2]", "not a Recap trace"),
        ("3", "not a Recap trace"),
        (" \n", "it is empty"),
        ("GIF89a", "Line 1 of the trace is not JSON"),
        ('{"type":"start","format":2}\n{"type":"other"}', "Line 2 of the trace is not a record"),
    ],
)
def test_older_traces_and_foreign_files_are_refused_in_one_sentence(text, match):
    with pytest.raises(ValueError, match=match) as caught:
        list(parse(text))
    assert "\n" not in str(caught.value)


def test_the_trace_reads_back():
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    lines = list(trace_lines(stream(ask(target), fresh("recap", target), max_new_tokens=60)))
    assert all("\n" not in line and "<" not in line for line in lines)
    records = list(parse("\n".join(lines)))
    assert [r["type"] for r in records[:1] + records[-1:]] == ["start", "turn"]
    steps = [r for r in records if r["type"] == "step"]
    ids = [records[0]["first_token"], *(t for s in steps for t in s["token_ids"])]
    assert ids == records[-1]["token_ids"]
    for step in steps:
        nodes = [tuple(n) for n in step["nodes"]]
        assert len(nodes) == step["packed_tokens"]
        for row in step["accepted"]:
            assert nodes[row][0] in step["token_ids"]
    odd = start_line(decoder="\x85\u2028", model="<", device="", dtype="")
    assert [r["decoder"] for r in parse(odd)] == ["\x85\u2028"], "no line ends but at a line's end"
    with pytest.raises(ValueError, match="Line 2"):
        list(parse(f"{odd}\nnot json"))


def test_what_was_known_explains_every_candidate_that_the_target_judged():
    """Votes are entries of the rows that a step tells, and the mixture names the children best first."""
    target = ScriptedTarget(vocab_size=16, order=2, eos=False)
    judged = 0
    for step in stream(ask(target), fresh("recap", target), max_new_tokens=60):
        known = {
            row: {name: dict(said) for name, said in rows.items()} for row, rows in step.stored
        }
        assert set(known) <= {0, *step.accepted}
        for node in step.nodes[1:]:
            if node.parent not in known:
                continue
            judged += 1
            rows = known[node.parent]
            mixed = sum(weight * probability for _, weight, probability, _ in node.contributions)
            assert rows["mixed"][node.text] == pytest.approx(mixed)
            for level, _, probability, _ in node.contributions:
                if level != "runner-up":
                    assert rows[level].get(node.text, 0.0) == pytest.approx(probability)
        for rows in known.values():
            values = list(rows.get("mixed", {}).values())
            assert values == sorted(values, reverse=True)
    assert judged > 50
    off = stream(ask(target), fresh("recap", target), max_new_tokens=20, record=False)
    assert all(step.stored == () for step in off)


@pytest.mark.parametrize("mutant", ["mask", "depth", "compact", "accept"])
def test_the_scripted_target_notices_a_broken_loop(mutant, monkeypatch):
    """Each break of the loop changes the tokens or trips an assert."""
    import numpy as np

    from recap import engine

    target = ScriptedTarget(vocab_size=16, order=3, eos=False)
    want = target.greedy([int(t) for t in PROMPT.split()], 120)
    if mutant == "mask":
        monkeypatch.setattr(
            CandidateTree, "ancestor_mask", lambda s: np.tril(np.ones((len(s),) * 2, bool))
        )
    elif mutant == "depth":
        real = ScriptedTarget.verify
        monkeypatch.setattr(
            ScriptedTarget,
            "verify",
            lambda s, st, t, d, m, *, top_k: real(s, st, t, list(range(len(t))), m, top_k=top_k),
        )
    elif mutant == "compact":
        real_compact = ScriptedTarget.compact
        monkeypatch.setattr(
            ScriptedTarget, "compact", lambda s, st, rows: real_compact(s, st, range(len(rows)))
        )
    else:
        monkeypatch.setattr(
            engine.CandidateTree,
            "accept",
            lambda s, c: ([1], int(c[1])) if len(s) > 1 else ([], int(c[0])),
        )
    try:
        got = list(generate(ask(target), fresh("recap", target), max_new_tokens=120).token_ids)
    except AssertionError:
        return
    assert got != want
