"""Download one of Google's releases of BERT, a zip, and convert it to Hugging Face's layout.

example:
  python workflow/scripts/fetch_google_release.py \\
    --url https://host/uncased_L-12_H-768_A-12.zip \\
    --sha256 DIGEST --lowercase --output models/bert-base-uncased
"""

from bertline.command_line import run_command
from bertline.modeling.google_release import fetch_google_release

if __name__ == "__main__":
    run_command(fetch_google_release, __doc__)
