"""Import an existing tokenizer: a vocab.txt or a tokenizer.json.

example:
  python workflow/scripts/take_tokenizer.py vocab.txt --lowercase \\
    --output tokenizer.json
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.encoding.tokenizer import save_tokenizer, take_with_options


def take(vocabulary: Path, output: Path, *, lowercase: bool | None = None, strip_accents: bool | None = None) -> None:
    """Import a tokenizer.

    Args:
        vocabulary: vocab.txt, one token per line, or tokenizer.json.
        output: the tokenizer.json to write.
        lowercase: case of a vocab.txt (default: that of the tokenizer_config.json next to it, else true); a
            tokenizer.json contains this setting.
        strip_accents: remove accents in a text for a vocab.txt; like lowercase if not given.
    """
    if output.resolve() == vocabulary.resolve():
        raise BertlineError(f"{output} is the vocabulary; name another output")
    save_tokenizer(take_with_options(vocabulary, lowercase=lowercase, strip_accents=strip_accents), output)


if __name__ == "__main__":
    run_command(take, __doc__)
