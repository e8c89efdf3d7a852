"""The plan behind the rules, made from the configuration, and functions from wildcards to files."""

import json
import re
import shutil

from snakemake.utils import min_version

from bertline.cluster.schedulers import export_own_job
from bertline.planning import external_weights, inputs, recipes, targets
from bertline.planning.names import check_links, remove_old_links, write_links
from bertline.planning.plan_file import plan_of_job, write_plan_file
from bertline.planning.resolve import make_plan
from bertline.results import paths
from bertline.settings import overrides
from bertline.settings.configuration import read_yaml
from bertline.console import exit_on_errors
from bertline.corpus import sources

min_version("9.9")

# Scripts import the bertline of this checkout. Conda environments do not contain it, because several checkouts may
# share one, and Snakemake clears PYTHONPATH there.
shell.prefix(
    f"set -euo pipefail; export PYTHONPATH={shlex.quote(str(CHECKOUT / 'src'))}"
    "${{PYTHONPATH:+:$PYTHONPATH}}; "
)

# Trainers record it. Every job of a scheduler reads this file.
export_own_job()

with exit_on_errors():
    # Snakemake has read them, but does not report duplicate keys.
    for path in workflow.configfiles if workflow.is_main_process else ():
        read_yaml(path)
    schema = workflow.source_path("../../config/config.schema.yaml")
    # Those of the command line; every job gets them.
    arguments = workflow.config_settings.config_args or ()
    config = overrides.apply_arguments(config, arguments, schema)
    plan = (make_plan if workflow.is_main_process else plan_of_job)(
        config, schema, CHECKOUT / "config/models"
    )

SEQUENCE_LENGTHS = plan.config["sequence_lengths"]
# Resources of the download rules, not params: a change of source or contact must not rerun them.
CONTACT = shlex.quote(plan.config.get("contact", ""))
MIRRORS = shlex.join(plan.config["mirrors"])
GUTENBERG_MIRRORS = shlex.join(plan.config["gutenberg_mirrors"])


wildcard_constraints:
    wiki="[a-z][a-z0-9_]*",
    dump=r"\d{8}",
    corpus="[A-Za-z0-9][A-Za-z0-9_.-]*-[0-9a-f]{8}",
    part="[A-Za-z0-9][A-Za-z0-9_.-]*",
    dataset="[0-9a-f]{16}",
    shard=r"\d{5}|held_out",
    phase="[0-9a-f]{16}",
    finetuning="[0-9a-f]{16}",
    evaluation="[0-9a-f]{16}",
    kept="[0-9a-f]{16}",
    collection="[0-9a-f]{16}",
    step=r"\d+",
    book=r"\d+",
    sha256="[0-9a-f]{64}",
    run="[A-Za-z0-9][A-Za-z0-9_.-]*",
    fingerprint="[0-9a-f]{16}",


def only(names):
    """Return a wildcard constraint to these names."""
    return "|".join(map(re.escape, names)) or "(?!)"


DUMPS = [key for key, corpus in plan.corpora.items() if "parts" not in corpus]


def listing_of(corpus):
    """Return the listing of a dump's files; of one that is downloaded, the checkpoint makes it."""
    entry = plan.corpora[corpus]
    if "wiki" in entry:
        checkpoints.list_dump_parts.get(
            wiki=entry["wiki"], dump=entry["settings"]["dump"]
        )
    return sources.listing_of(entry)


def parts_of(corpus):
    """Return the names of a corpus's parts, one per job; for a dump, slices of its files."""
    if corpus in DUMPS:
        listing_of(corpus)
    return sources.parts_of(plan.corpora[corpus])


def planned(function, wildcard):
    """Return a function for a rule's input or parameter: `function` of planning/inputs.py at a wildcard's value."""
    return lambda wildcards: function(plan, wildcards[wildcard])


def planned_location(function, wildcard):
    """Return a function for a rule's parameter: what `function` of planning/inputs.py returns.

    Snakemake does not compare parameters whose functions use the input: another location must rerun nothing.
    """
    return lambda wildcards, input: function(plan, wildcards[wildcard])


def planned_recipe(wildcard):
    """Return a function for a rule's parameter: the recipe file of the result that a wildcard names."""
    return lambda wildcards: recipes.recipe_path(wildcards[wildcard])


def initial_weights_option(function, wildcard):
    """Return a function for a rule's parameter: words of the option for initial weights; none for random ones."""

    def words(wildcards, input):
        files = planned_location(function, wildcard)(wildcards, input)
        return ["--initial-weights", *files] if files else []

    return words


def registered_name(wildcards):
    """Return the words of the option that registers a run's models; none if its configuration does not request it."""
    name = plan.runs[wildcards.run]["config"].get("register")
    return ["--register", name] if name else []


def output_folder(wildcards, output):
    return Path(output[0]).parent
