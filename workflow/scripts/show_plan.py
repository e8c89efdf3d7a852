"""Show what a configuration asks for and what of it is finished."""

import argparse

import yaml
from tabulate import tabulate

from bertline.console import run_command
from bertline.overview import overview
from bertline.plan import make_plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: show_plan.py --configfile config/demo.yaml")
    parser.add_argument("--configfile", required=True)
    arguments = parser.parse_args()
    with open(arguments.configfile, encoding="utf-8") as file:
        plan = make_plan(yaml.safe_load(file), "config/config.schema.yaml", "config/models")
    print(tabulate(overview(plan), headers=["run", "what", "folder", "state"]))
    for problem in plan.problems:
        print(f"missing: {problem}")


if __name__ == "__main__":
    run_command(main)
