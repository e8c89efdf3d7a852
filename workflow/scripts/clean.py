"""Remove the generated sample and the demo's results. Results of other configurations are kept.

example:
  python workflow/scripts/clean.py --configfile config/demo.yaml
"""

import shutil
from pathlib import Path

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.planning.plan import Plan, report_fingerprint
from bertline.planning.recipes import recipe_paths
from bertline.planning.resolve import plan_of_files
from bertline.results import paths


def folders_of(plan: Plan) -> list[str]:
    """Return the folders that belong only to this plan."""
    return [
        *(paths.CORPUS.format(corpus=key) for key in plan.corpora),
        *([paths.EVALUATION.format(evaluation=plan.evaluation["fingerprint"])] if plan.evaluation else []),
        *(paths.DATASET.format(dataset=key) for key, dataset in plan.datasets.items() if "path" not in dataset),
        *(paths.PHASE.format(phase=key) for key in plan.phases),
        *(paths.FINETUNING.format(finetuning=key) for key in plan.finetunings),
        *(paths.KEPT.format(kept=key) for key in plan.kept),
        *(paths.RUN.format(run=name) for name in plan.runs),
        paths.REPORT.format(fingerprint=report_fingerprint(plan)),
    ]


def clean(configfile: str = "config/demo.yaml") -> None:
    """Remove the results of a configuration.

    Args:
        configfile: of the demo; what only this configuration has is removed.
    """
    try:
        plan = plan_of_files([configfile])
    except BertlineError as error:
        raise BertlineError(f"cannot tell what belongs to {configfile}: {error}") from error
    for folder in [*folders_of(plan), "resources/sample", paths.WIKI.format(wiki="samplewiki")]:
        if Path(folder).exists():
            shutil.rmtree(folder)
            print(f"removed {folder}")
    for recipe in recipe_paths(plan):
        recipe.unlink(missing_ok=True)


if __name__ == "__main__":
    run_command(clean, __doc__)
