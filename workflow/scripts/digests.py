"""Read the inputs of a configuration for their checksums, which name results. A start reads what was not read before.

example:
  srun --cpus-per-task 8 python workflow/scripts/digests.py \\
    --configfile config/config.yaml
"""

from collections.abc import Sequence
from pathlib import Path

from bertline.command_line import Settings, run_command
from bertline.console import BertlineError
from bertline.planning.corpora import REMEMBERED_DIGESTS
from bertline.planning.resolve import plan_of_files


def digest_inputs(configfile: Sequence[str], *, settings: Settings = ()) -> None:
    """Read the inputs of a configuration, and remember their checksums.

    Args:
        configfile: the configuration; a further file is merged over it.
        settings: replaced settings, PATH=VALUE.
    """
    plan = plan_of_files(configfile, settings)
    if plan.problems:
        raise BertlineError("; ".join(plan.problems))
    if Path(REMEMBERED_DIGESTS).exists():
        print(f"the checksums are in {REMEMBERED_DIGESTS}")
    else:
        print("this configuration has no files whose checksums are needed")


if __name__ == "__main__":
    run_command(digest_inputs, __doc__)
