"""Print how much of a GPU's fma, fp16, tensor and xu pipes the kernels of a training used, by Nsight Compute's CSV.

example:
  python workflow/scripts/pipe_utilization.py               # what to record
  python workflow/scripts/pipe_utilization.py kernels.csv   # what was recorded
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.reporting.nsight import METRICS, read_kernels, table_of, utilization


def print_utilization(kernels: Path | None = None) -> None:
    """Print a table.

    Args:
        kernels: what ncu printed; without it, the metrics that ncu needs are printed.
    """
    print(",".join(METRICS) if kernels is None else table_of(utilization(read_kernels(kernels))))


if __name__ == "__main__":
    run_command(print_utilization, __doc__)
