"""Make one shard by copying its ranges of the parts.

example:
  python workflow/scripts/write_shard.py --plan plan.jsonl --shard 00000 \\
    --output shards/00000.txt.zst
"""

from bertline.command_line import run_command
from bertline.corpus.shards import write_shard

if __name__ == "__main__":
    run_command(write_shard, __doc__)
