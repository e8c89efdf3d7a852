"""Assign every document to one shard or to the held-out set, using the parts' indexes.

example:
  python workflow/scripts/plan_shards.py \\
    --recipe results/recipes/0123456789abcdef.json --output plan.jsonl
"""

from bertline.command_line import run_command
from bertline.corpus.shards import plan_shards

if __name__ == "__main__":
    run_command(plan_shards, __doc__)
