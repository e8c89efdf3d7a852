"""Convert a BERT to Hugging Face's layout: Google's TensorFlow release, or a folder with pytorch_model.bin.

example:
  python workflow/scripts/convert_weights.py uncased_L-12_H-768_A-12 \\
    --lowercase --output models/bert-base-uncased
"""

from bertline.command_line import run_command
from bertline.modeling.conversion import convert_weights

if __name__ == "__main__":
    run_command(convert_weights, __doc__)
