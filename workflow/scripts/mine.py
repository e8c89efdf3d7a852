"""Write a commented configuration for texts of your own, sized to them and to this machine.

example:
  python workflow/scripts/mine.py texts --output mine.yaml \\
    --time 15m
"""

from bertline.command_line import run_command
from bertline.planning.trials import exit_on_signals
from bertline.proposal.new_configuration import write_configuration

if __name__ == "__main__":
    with exit_on_signals():
        run_command(write_configuration, __doc__)
