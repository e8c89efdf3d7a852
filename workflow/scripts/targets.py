"""List the names that snakemake can be asked for, with their state.

example:
  python workflow/scripts/targets.py --configfile config/demo.yaml \\
    --run demo/glue/cola
"""

from collections.abc import Sequence

from tabulate import tabulate

from bertline.command_line import Settings, run_command
from bertline.planning.names import names_of
from bertline.planning.resolve import plan_of_files
from bertline.planning.target_states import target_states
from bertline.planning.targets import STAGES


def list_targets(
    configfile: Sequence[str], *, settings: Settings = (), run: str | None = None, names: bool = False
) -> str:
    """List names and their state, and the stages.

    Args:
        configfile: the configuration; a further file is merged over it.
        settings: replaced settings, PATH=VALUE.
        run: a run, or a name below one: what is in it one by one, such as seeds and shards.
        names: print only the names, without a run all of them and the stages, for the completion of a shell.
    """
    plan = plan_of_files(configfile, settings)
    if names and run is None:
        return "\n".join([*names_of(plan), *STAGES])
    states = target_states(plan, run)
    if names:
        return "\n".join(name for name, _ in states)
    table = tabulate(states, headers=["name", "state"], disable_numparse=True)
    return table if run else f"{table}\n\nStages, of all runs: {', '.join(STAGES)}"


if __name__ == "__main__":
    run_command(list_targets, __doc__)
