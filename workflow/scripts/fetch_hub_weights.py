"""Download a model of the Hugging Face Hub at a pinned commit: safetensors, JSON and vocabulary, no pickle.

example:
  python workflow/scripts/fetch_hub_weights.py google-bert/bert-base-uncased \\
    COMMIT --output models/bert-base-uncased
"""

from bertline.command_line import run_command
from bertline.modeling.hub_weights import fetch_hub_weights

if __name__ == "__main__":
    run_command(fetch_hub_weights, __doc__)
