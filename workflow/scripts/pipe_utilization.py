"""Print how much of a GPU's fma, fp16, tensor and xu pipes the kernels of a training used, by Nsight Compute's CSV.

example:
  ncu --csv --profile-from-start off --target-processes all --metrics $(python workflow/scripts/pipe_utilization.py) \\
    python workflow/scripts/launch.py -- workflow/scripts/pretrain.py ... --profile 7:8 --profiler nsight > kernels.csv
  python workflow/scripts/pipe_utilization.py kernels.csv
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
