"""Choose the best of finished fine-tunings, keep its model and delete those of the others.

example:
  python workflow/scripts/keep_models.py results/recipes/0123456789abcdef.json
"""

from bertline.command_line import run_command
from bertline.results.kept import keep_models

if __name__ == "__main__":
    run_command(keep_models, __doc__)
