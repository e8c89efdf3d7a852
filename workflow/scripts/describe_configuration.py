"""Write config/README.md: how to configure bertline, with every key of config/config.schema.yaml.

example:
  python workflow/scripts/describe_configuration.py
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.files import CHECKOUT, SCHEMA, write_text
from bertline.settings.configuration import load_schema
from bertline.settings.reference import describe_schema

BEGINNING = """\
# Configuration

A configuration is one YAML file: `config/config.yaml`, or the file after `--configfile`, which replaces it. It
describes the results: corpora, datasets, evaluation data and runs. A profile and `site.yaml` (docs/cluster.md) set
where jobs run, and on how many nodes and GPUs; they do not alter any result.

1. Put your e-mail address into `contact`: Wikimedia blocks downloads without one.
2. Name your text under `corpora`, and set under `datasets` how it is divided and tokenized.
3. Name a network, its phases and its tasks under `runs`.
4. Run `snakemake --profile profiles/local -n` to see what would run, and what is still missing.

`config/demo.yaml` is a small complete example; the other files here are recipes. A second file after `--configfile` is
merged over the first. `--config set=runs.demo.seed=2` replaces a value by its path. A wrong key or value gives one line
that names the nearest valid one.

`python workflow/scripts/describe_configuration.py` generates these tables from `config/config.schema.yaml`.

"""


def describe_configuration(output: Path = CHECKOUT / "config/README.md") -> None:
    """Write the page.

    Args:
        output: the file to write.
    """
    write_text(output, BEGINNING + describe_schema(load_schema(SCHEMA)))


if __name__ == "__main__":
    run_command(describe_configuration, __doc__)
