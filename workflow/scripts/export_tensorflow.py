"""Write a BERT as a TensorFlow checkpoint with Google's names, for programs that read Google's releases.

example:
  python workflow/scripts/export_tensorflow.py results/runs/demo/export \\
    --output tensorflow
"""

from bertline.command_line import run_command
from bertline.modeling.conversion import export_tensorflow

if __name__ == "__main__":
    run_command(export_tensorflow, __doc__)
