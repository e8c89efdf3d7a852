"""Generate the demo's synthetic sample: a Wikimedia mirror, books, SQuAD and GLUE files about an invented world.

example:
  python workflow/scripts/make_demo_data.py --output resources/sample --seed 1
"""

from bertline.command_line import run_command
from bertline.demo_data.generate import generate

if __name__ == "__main__":
    run_command(generate, __doc__)
