"""The places of samples of perf, and the table of a profile."""

from __future__ import annotations

import pytest
from benchmarks.evidence.further import Profile
from benchmarks.evidence.record import Record, Unit

from benchmarks import profiles

OUTPUT = """
    ffffffff8150a0e5 rep_movs_alternative ([kernel.kallsyms])
    ffffffff81490d3a generic_perform_write ([kernel.kallsyms])
    ffffffff8130e6a1 __x64_sys_pwrite64 ([kernel.kallsyms])
    ffffffff81c00079 do_syscall_64 ([kernel.kallsyms])
        7f21f0b0a1c7 __libc_pwrite64 (/usr/lib/x86_64-linux-gnu/libc.so.6)

        7f21f0d3a1c7 _PyEval_EvalFrameDefault (/opt/lib/libpython3.11.so.1.0)
        7f21f0d3a1c7 [unknown] (/opt/lib/libpython3.11.so.1.0)

        7f21f0d00000 _PyObject_Malloc (/opt/lib/libpython3.11.so.1.0)

        7f21e0d00000 uv__io_poll (/opt/uvloop/loop.cpython-311-x86_64-linux-gnu.so)

    ffffffff8150a0e5 tcp_sendmsg ([kernel.kallsyms])
    ffffffff81490d3a ksys_write ([kernel.kallsyms])
    ffffffff81c00079 do_syscall_64 ([kernel.kallsyms])

    ffffffff81c00079 do_syscall_64 ([kernel.kallsyms])
    ffffffff81c00079 entry_SYSCALL_64_after_hwframe ([kernel.kallsyms])

    ffffffff81c00079 asm_sysvec_apic_timer_interrupt ([kernel.kallsyms])
        7f21f0d00000 _PyObject_Malloc (/opt/lib/libpython3.11.so.1.0)

        7ffd3b9d0000 [unknown] ([vdso])
"""


def test_a_sample_in_the_kernel_belongs_to_its_system_call_and_others_to_their_library() -> None:
    found = list(profiles.chains(OUTPUT.splitlines()))
    assert [profiles.place(chain) for chain in found] == [
        "kernel: pwrite64",
        "Python: evaluation",
        "Python: objects and memory",
        "uvloop.loop",
        "kernel: write",
        "kernel: entry and exit of system calls",
        "kernel: interrupts and scheduling",
        "libc",
    ]
    assert profiles.symbols(found, 1) == {"rep_movs_alternative": 1}


def test_a_profile_shows_the_share_of_the_kernel_and_of_each_place() -> None:
    experiment = Profile()
    record = Record("profile", "c" * 40, "t", 1, {}, experiment.settings(1.0))
    values = {
        "samples": 200,
        "places": {"Python: evaluation": 99, "kernel: pwrite64": 60, "kernel: sendto": 40, "x": 1},
        "functions": {"_PyEval_EvalFrameDefault": 99, "rep_movs_alternative": 33},
    }
    record.units = [Unit("one_a_request", "2026-11-23", 1.0, 0.0, values)]
    text = experiment.snippets(record)["profile"]
    assert "| **kernel** | 50.0% |" in text and "| **Python and libraries** | 50.0% |" in text
    assert "| kernel: pwrite64 | 30.0% |" in text and "| x |" not in text
    assert "`_PyEval_EvalFrameDefault` 49.5%, `rep_movs_alternative` 16.5%" in text
    assert experiment.next_unit(record) == "batches_of_50"


def test_places_with_equal_shares_are_in_the_order_of_their_names() -> None:
    experiment = Profile()
    record = Record("profile", "c" * 40, "t", 1, {}, experiment.settings(1.0))
    names = [f"kernel: {letter}" for letter in "hbgaecfd"]
    values = {"samples": 200, "places": dict.fromkeys(names, 25), "functions": {}}
    record.units = [Unit("one_a_request", "2026-11-23", 1.0, 0.0, values)]
    text = experiment.snippets(record)["profile"]
    assert [line[10] for line in text.splitlines() if line.startswith("| kernel: ")] == [
        *"abcdefgh"
    ]


@pytest.mark.parametrize("path", ["", "/nonexistent"])
def test_a_machine_without_perf_says_so(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path)
    with pytest.raises(profiles.PerfUnavailable, match="no `perf`"):
        with profiles.sampling(1, profiles.Path("x")):
            pass
