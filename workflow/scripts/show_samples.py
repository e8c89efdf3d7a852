"""Print samples of a file as text: segments, label, document and corpus, and masks if the file has them.

examples:
  python workflow/scripts/show_samples.py \\
    results/runs/demo/dataset/seq128/00000.h5 \\
    --sample 1000 --count 5
  python workflow/scripts/show_samples.py wikicorpus_en_training_0.hdf5 \\
    --tokenizer vocab.txt
"""

from bertline.command_line import run_command
from bertline.encoding.inspection import show_samples

if __name__ == "__main__":
    run_command(show_samples, __doc__)
