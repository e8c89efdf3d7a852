"""Remove the generated sample and what the demo made of it. Results of other configurations stay."""

import argparse
import shutil
from pathlib import Path

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.planning.plan import Plan, report_fingerprint
from bertline.planning.resolve import make_plan
from bertline.settings.configuration import read_yaml


def folders_of(plan: Plan) -> list[str]:
    """Every folder that belongs to the plan alone."""
    return [
        *(f"results/corpora/{key}" for key in plan.corpora),
        *([f"results/evaluation/{plan.evaluation['fingerprint']}"] if plan.evaluation else []),
        *(f"results/datasets/{key}" for key, dataset in plan.datasets.items() if "path" not in dataset),
        *(f"results/phases/{key}" for key in plan.phases),
        *(f"results/finetunings/{key}" for key in plan.finetunings),
        *(f"results/runs/{name}" for name in plan.runs),
        f"results/report/{report_fingerprint(plan)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/clean.py --configfile config/demo.yaml",
    )
    parser.add_argument("--configfile", default="config/demo.yaml")
    arguments = parser.parse_args()
    try:
        plan = make_plan(read_yaml(arguments.configfile), "config/config.schema.yaml", "config/models")
    except BertlineError as error:
        raise BertlineError(f"cannot tell what belongs to {arguments.configfile}: {error}") from error
    for folder in [*folders_of(plan), "resources/sample", "resources/wikimedia/samplewiki"]:
        if Path(folder).exists():
            shutil.rmtree(folder)
            print(f"removed {folder}")


if __name__ == "__main__":
    run_command(main)
