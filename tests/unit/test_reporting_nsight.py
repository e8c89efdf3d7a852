"""Utilisation of pipes from tables as ncu prints them; the numbers were added up by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.console import BertlineError
from bertline.reporting.nsight import CYCLES, METRICS, PIPES, Kernel, read_kernels, table_of, utilization

LAUNCH = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC"'
)
# Kernel 0 is a matrix product, 1 a LayerNorm, 2 the same product again; the GPU does not measure fp16 for the second.
VALUES = {
    "0": ("gemm", {"cycles": "3,000", "fma": "10", "fp16": "1", "tensor": "80.5", "xu": "0"}),
    "1": ("layer_norm", {"cycles": "1,000", "fma": "40", "fp16": "n/a", "tensor": "0", "xu": "20"}),
    "2": ("gemm", {"cycles": "1,000", "fma": "10", "fp16": "1", "tensor": "60.5", "xu": "0"}),
}
NAMES = {"cycles": CYCLES} | dict(zip(PIPES, METRICS[1:], strict=True))


def start(number: str, kernel: str) -> str:
    return f'"{number}","77","python","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(512, 1, 1)","0","9.0"'


def details() -> str:
    lines = [
        "step 7/100, loss 6.1",
        "==PROF== Connected to process 77",
        f'{LAUNCH},"Section Name","Metric Name","Metric Unit","Metric Value"',
    ]
    for number, (kernel, values) in VALUES.items():
        section = '"Command line profiler metrics"'
        lines += [f'{start(number, kernel)},{section},"{NAMES[key]}","%","{value}"' for key, value in values.items()]
    return "\n".join([*lines, "==PROF== Disconnected", ""])


def raw() -> str:
    header = ",".join(f'"{NAMES[key]}"' for key in NAMES)
    lines = [f"{LAUNCH},{header}", ",".join(['""'] * 11 + ['"cycle"', *['"%"'] * 4])]
    for number, (kernel, values) in VALUES.items():
        lines.append(",".join([start(number, kernel), *(f'"{values[key]}"' for key in NAMES)]))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", [details, raw])
def test_shares_are_weighted_by_cycles(tmp_path: Path, page) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(page())
    every, gemm, norm = utilization(read_kernels(file))
    assert (every.launches, every.cycles) == (3, 5000)
    # (3000 x 80.5 + 1000 x 60.5) / 5000, and the others likewise.
    assert {pipe: round(share, 6) for pipe, share in every.utilization.items()} == {
        "fma": 16.0, "fp16": 0.8, "tensor": 60.4, "xu": 4.0,
    }  # fmt: skip
    assert (gemm.name, gemm.launches, round(gemm.utilization["tensor"], 6)) == ("gemm", 2, 75.5)
    assert (norm.name, norm.utilization["fp16"]) == ("layer_norm", 0.0)
    assert "all kernels" in table_of([every, gemm, norm])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "no table of ncu"),
        ("step 1\n", "no table of ncu"),
        (details().replace(CYCLES, "sm__cycles_active.avg"), f"kernel 0 has no {CYCLES}"),
        (details().replace('"80.5"', '"80,5x"'), "'80,5x' is not a number"),
        *(
            (details().replace('"80.5"', f'"{text}"'), "is not a number")
            for text in ("80,5", "1.000,5", "nan", "inf", "-5")
        ),
        (details().replace('"Kernel Name",', ""), "no table of ncu"),
        (details().replace(',"%","80.5"', ""), "the row of kernel 0 is cut off"),
        (raw().replace(',"80.5","0"', ""), "the row of kernel 0 is cut off"),
        (details().replace('"layer_norm"', f'"{"k" * 200_000}"'), "no table of ncu (field larger than"),
        (details() + details(), "2 tables of ncu"),
    ],
)
def test_another_file_is_one_line(tmp_path: Path, content: str, line: str) -> None:
    file = tmp_path / "kernels.csv"
    file.write_text(content)
    with pytest.raises(BertlineError, match=re.escape(line)):
        read_kernels(file)


@pytest.mark.parametrize("name", ["absent.csv", "."])
def test_what_is_no_file_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(BertlineError, match="cannot be read"):
        read_kernels(tmp_path / name)


def test_quoted_lines_of_the_program_are_skipped_and_names_do_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    file = tmp_path / "kernels.csv"
    lines = details().replace("layer_norm", "\x1b[31mnorm\x07").split("\n")
    file.write_text("\n".join(['"ID","Process ID" of the program', *lines[:5], '"a quoted line"', *lines[5:]]))
    table = table_of(utilization(read_kernels(file)))
    assert "?[31mnorm?" in table
    assert table.replace("\n", "").isprintable()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(1, 1e9), st.floats(0, 100)), min_size=1))
def test_a_utilization_is_between_those_of_its_kernels(launches) -> None:
    rows = utilization([Kernel(name, cycles, dict.fromkeys(PIPES, share)) for name, cycles, share in launches])
    shares = [share for _, _, share in launches]
    assert min(shares) - 1e-6 <= rows[0].utilization["tensor"] <= max(shares) + 1e-6
    assert rows[0].cycles == pytest.approx(sum(row.cycles for row in rows[1:]))
