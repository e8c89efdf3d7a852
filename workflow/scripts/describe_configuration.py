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

A configuration is one YAML file: `config/config.yaml`, or the one after `--configfile`, which replaces it. It says what
is made: corpora, datasets, evaluation data and runs. Where jobs run, on how many nodes and GPUs, is in a profile and in
`site.yaml` (docs/cluster.md), and alters no result.

1. Put your e-mail address into `contact`: Wikimedia blocks downloads without one.
2. Name your text under `corpora`, how it is divided and tokenized under `datasets`.
3. Name a network, its phases and its tasks under `runs`.
4. `snakemake --profile profiles/local -n` shows what would run, and what is still missing.

`config/demo.yaml` is a small whole example; the other files here are recipes. A second file after `--configfile` is
merged over the first. `--config set=runs.demo.seed=2` replaces a value by its path. A wrong key or value is one line
that names the nearest right one.

The tables are written by `python workflow/scripts/describe_configuration.py` from `config/config.schema.yaml`.

"""


def describe_configuration(output: Path = CHECKOUT / "config/README.md") -> None:
    """Write the page.

    Args:
        output: the file to write.
    """
    write_text(output, BEGINNING + describe_schema(load_schema(SCHEMA)))


if __name__ == "__main__":
    run_command(describe_configuration, __doc__)
