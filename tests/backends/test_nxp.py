"""NXP Neutron: kernels by number, an NPU's clock of 32 bits, one byte of metadata."""

from support.delegate_runs import logged, run_delegate


def test_kernels_resolve_by_number_and_the_dump_names_no_operator() -> None:
    """The map lists gaps and the dump with `()`."""
    events = [logged(0, 5_000, 6_000, b"\x2a"), logged(1, 6_000, 7_500, b"\x07"), logged(2, 7_500, 7_600, b"\x00")]
    run = run_delegate("NeutronBackend", events, entries={0: [1, 2], 1: [], 2: []})
    assert [run.events[str(number)].name for number in range(3)] == ["aten.op1, aten.op2", "id 1", "id 2"]
    assert run.said(0, "resolution", "debug_handles", "time.quality", "delegate.metadata") == {
        "resolution.status": "exact",
        "debug_handles": (1, 2),
        "time.quality": "foreign_clock",
        "delegate.metadata.function": "kernel",
        "delegate.metadata.kernel_code": 42,
    }
    assert run.said(2, "resolution", "debug_handles", "delegate.metadata") == {
        "resolution.status": "exact",
        "delegate.metadata.function": "profiling_dump",
    }


def test_12_is_not_2() -> None:
    """ExecuTorch's Inspector finds `2` in `12`."""
    run = run_delegate("NeutronBackend", [logged(12, 5_000, 6_000)], entries={1: [1], 2: [2]})
    assert run.said(12, "resolution", "debug_handles") == {"resolution.status": "unmapped_identifier"}


def test_its_counter_wraps_at_32_bits() -> None:
    """An event over the wrap does not end before it started."""
    before, after = 2**32 - 600, 400
    run = run_delegate("NeutronBackend", [logged(0, before, after), logged(1, after, after + 50)], entries={0: [1], 1: [2]})
    (start, end), (later, _) = run.times(0), run.times(1)
    assert start < end == later


def test_metadata_of_another_length_are_not_its_own() -> None:
    """Two bytes are no function code."""
    run = run_delegate("NeutronBackend", [logged(0, 5_000, 6_000, b"\x01\x02")], entries={0: [1]})
    assert run.said(0, "delegate.metadata") == {
        "delegate.metadata_raw": "0102",
        "delegate.metadata_error": "2 bytes, where a function code has 1",
    }
