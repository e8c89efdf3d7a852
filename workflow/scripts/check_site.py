"""Compare site.yaml with the partitions and accounts of the Slurm cluster. Snakemake does so at every start.

example:
  python workflow/scripts/check_site.py site.yaml
"""

from typing import Literal

from bertline.cluster.site_check import check_site
from bertline.command_line import run_command
from bertline.files import CHECKOUT
from bertline.settings.site import read_site


def check(site: str, *, slurm_status_command: Literal["sacct", "squeue"] | None = None) -> None:
    """Check a site file.

    Args:
        site: the site file.
        slurm_status_command: as snakemake gets it; by default, sacct where it is.
    """
    check_site(read_site(site, CHECKOUT / "config/site.schema.yaml"), status_command=slurm_status_command)
    print(f"{site}: partitions, account and sizes exist")


if __name__ == "__main__":
    run_command(check, __doc__)
