"""Encode one shard: tokenize its text once, and make samples for every sequence length.

example:
  python workflow/scripts/encode_shard.py --shard 00000 \\
    --recipe results/recipes/0123456789abcdef.json \\
    --directory results/datasets/0123456789abcdef
"""

from bertline.command_line import run_command
from bertline.encoding.encode_shard import encode_shard

if __name__ == "__main__":
    run_command(encode_shard, __doc__)
