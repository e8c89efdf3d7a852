"""Remove the generated sample and the demo's results. Results of other configurations are kept."""

import argparse
import shutil
from pathlib import Path

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.planning.plan import Plan, report_fingerprint
from bertline.planning.recipes import recipe_paths
from bertline.planning.resolve import make_plan
from bertline.results import paths
from bertline.settings.configuration import read_yaml


def folders_of(plan: Plan) -> list[str]:
    """Return the folders that belong to the plan alone."""
    return [
        *(paths.CORPUS.format(corpus=key) for key in plan.corpora),
        *([paths.EVALUATION.format(evaluation=plan.evaluation["fingerprint"])] if plan.evaluation else []),
        *(paths.DATASET.format(dataset=key) for key, dataset in plan.datasets.items() if "path" not in dataset),
        *(paths.PHASE.format(phase=key) for key in plan.phases),
        *(paths.FINETUNING.format(finetuning=key) for key in plan.finetunings),
        *(paths.RUN.format(run=name) for name in plan.runs),
        paths.REPORT.format(fingerprint=report_fingerprint(plan)),
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
    for folder in [*folders_of(plan), "resources/sample", paths.WIKI.format(wiki="samplewiki")]:
        if Path(folder).exists():
            shutil.rmtree(folder)
            print(f"removed {folder}")
    for recipe in recipe_paths(plan):
        recipe.unlink(missing_ok=True)


if __name__ == "__main__":
    run_command(main)
