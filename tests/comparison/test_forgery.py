"""Candidates that forge what the judge reads: bytes, descriptors, answers, numbers, memory."""

import os
from collections.abc import Callable

import pytest
from tests.comparison.judged import Judged
from tests.comparison.program import BASELINE

from trackside.comparison.trial import Crew

_WRITE = """
def run(x):
    for fd in range(64):
        try:
            os.write(fd, {data})
        except OSError:
            pass
    return honest(x)
"""
_FRAMED = "struct.pack('<I', len(body)) + body"
BYTES = {
    "text": "b'VERDICT: faster 100x certified ' * 50",
    "two-bytes": "b'ab'",
    "an-answer": f'(body := b\'{{"ns":[1],"host":[1],"leaves":[],"hooks":[]}}\') and {_FRAMED}',
    "an-empty-object": f"(body := b'{{}}') and {_FRAMED}",
    "a-5000-digit-number": f"(body := b'{{\"ns\":[' + b'1' * 5000 + b']}}') and {_FRAMED}",
    "a-length-of-4-gigabytes": "struct.pack('<I', 0xFFFFFFFF)",
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_forged_on_every_descriptor_are_rejected(judge: Callable[..., Judged], name: str) -> None:
    result = judge(_WRITE.format(data=BYTES[name]))
    assert (result.verdict, result.failed, result.error) == ("rejected", ["protocol-intact"], None)


def test_descriptors_sent_to_the_judge_are_rejected_and_closed(
    judge: Callable[..., Judged], crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew.fleet, "_unprotected", ["seccomp"])  # whose filter refuses to send any
    before = len(os.listdir("/proc/self/fd"))
    result = judge("""
        import array
        def run(x):
            null = os.open("/dev/null", os.O_RDONLY)
            for fd in range(3, 64):
                try:
                    sender = socket.socket(fileno=os.dup(fd))
                    for byte in struct.pack("<I", 202) + b"{}" + b" " * 200:
                        rights = array.array("i", [null] * 8)
                        sender.sendmsg([bytes([byte])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                except OSError:
                    pass
            return honest(x)
    """)
    assert (result.verdict, result.failed) == ("rejected", ["protocol-intact"])
    assert len(os.listdir("/proc/self/fd")) <= before


# The candidate replaces an operation of the worker: `real` is the true answer, the expression what it sends.
ANSWERS = {
    "calls-no-times": ("calls", "{**real, 'ns': []}"),
    "calls-nan": ("calls", "{**real, 'ns': [float('nan')] * len(real['ns'])}"),
    "calls-negative": ("calls", "{**real, 'ns': [-5] * len(real['ns'])}"),
    "calls-infinite-host-time": ("calls", "{**real, 'host': [float('inf')] * len(real['host'])}"),
    "calls-null": ("calls", "None"),
    "calls-raised-text": ("calls", "{'raised': 'x'}"),
    "calls-raised-part": ("calls", "{'raised': {'type': 'x'}}"),
    "calls-leaf-without-place": (
        "calls",
        "{**real, 'leaves': [[{k: v for k, v in f.items() if k != 'offset'} for f in leaf]"
        " if leaf != 'same' else leaf for leaf in real['leaves']]}",
    ),
    "calls-leaf-beyond-the-arena": (
        "calls",
        "{**real, 'leaves': [[{**f, 'offset': 1 << 40} for f in leaf] if leaf != 'same' else leaf"
        " for leaf in real['leaves']]}",
    ),
    "calls-value-without-value": ("calls", "{**real, 'leaves': [[{'path': 'out', 'kind': 'value'}]]}"),
    "facts-empty": ("facts", "{}"),
    "facts-other-types": (
        "facts",
        "{'flags': 3, 'replaced': 7, 'hooks': None, 'refused': 0, 'device_peak': 'x'}",
    ),
    "state-empty": ("state_back", "{}"),
    "state-no-digest": ("state_back", "{'digests': {'x': [10**400, 'x']}}"),
    "17-megabytes": ("calls", "{**real, 'more': 'x' * (17 << 20)}"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_of_another_form_is_rejected(judge: Callable[..., Judged], name: str) -> None:
    operation, answer = ANSWERS[name]
    result = judge(f"""
        import trackside.workload.worker as worker
        original = worker._Worker._op_{operation}
        def forged(self, request):
            real = original(self, request)
            return {answer}
        worker._Worker._op_{operation} = forged
    """)
    assert (result.verdict, result.error) == ("rejected", None)
    assert set(result.failed) <= {"protocol-intact", "harness-intact", "worker-survives"}


def test_a_child_that_answers_in_its_parent_s_place_is_rejected(judge: Callable[..., Judged]) -> None:
    result = judge("def run(x):\n    os.fork()\n    return honest(x)")
    assert (result.verdict, result.failed) == ("rejected", ["protocol-intact"])


FORGE = """
import gc
worker = next(o for o in gc.get_objects() if type(o).__name__ == "_Worker")
channel, send = worker._channel, worker._channel.send
channel.send = lambda message, fds=(): send(forged(message), fds)
"""
FORGED = {
    "huge-host-time": """
def forged(message):
    return message | {"host": [10**400 for _ in message["host"]]} if "host" in message else message
""",
    "float-that-is-none": """
def run(x):
    return float(x.sum())
def forged(message):
    for leaf in message["leaves"] if isinstance(message.get("leaves"), list) else []:
        if leaf != "same":
            leaf[0]["value"] = {"float": "no number"}
    return message
""",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_number_that_is_none_is_the_candidate_s_fault(judge: Callable[..., Judged], name: str) -> None:
    baseline = BASELINE.replace("torch.relu(x) + 1", "float(x.sum())") if "float" in name else BASELINE
    result = judge(FORGED[name] + FORGE, baseline)
    assert result.error is None
    assert (result.verdict, result.failed) == ("rejected", ["protocol-intact"]), result.reason


def test_shared_memory_cannot_be_cut_off_under_the_judge_s_feet(judge: Callable[..., Judged]) -> None:
    result = judge(
        """
close = os.close
def keep(fd):
    if "trackside-arena" in os.readlink(f"/proc/self/fd/{fd}"):
        os.ftruncate(fd, 4096)
    close(fd)
os.close = keep
"""
    )
    assert result.error is None
    assert result.verdict == "rejected"
