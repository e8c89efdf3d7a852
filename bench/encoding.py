"""How fast text becomes ids: ours against the library that defines them, on the same text in the same process.

    python bench/encoding.py --vocabulary vocab.txt book.txt another.txt

Rounds alternate between the two, so that a noisy machine is unfair to both. The last line is JSON.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path

from pyzstd import SeekableZstdFile

from bertline.encoding.tokenization import tokenize_shard
from bertline.encoding.tokenizer import load_tokenizer, save_tokenizer, take_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, help="UTF-8 text files")
    parser.add_argument("--vocabulary", type=Path, required=True, help="vocab.txt or tokenizer.json")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    lines = [line for path in arguments.texts for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_json, shard = Path(folder, "tokenizer.json"), Path(folder, "00000.txt.zst")
        save_tokenizer(take_tokenizer(arguments.vocabulary, lowercase=True), tokenizer_json)
        tokenizer = load_tokenizer(tokenizer_json)
        with SeekableZstdFile(shard, "w") as file:
            file.write("".join(f"{line}\n" for line in lines).encode() + b"\n")
        seconds: dict[str, list[float]] = {"library": [], "ours": []}
        for _ in range(arguments.rounds):
            start = time.process_time()
            tokenizer.encode_batch_fast(lines, add_special_tokens=False)
            seconds["library"].append(time.process_time() - start)
            start = time.process_time()
            tokenize_shard(shard, tokenizer)
            seconds["ours"].append(time.process_time() - start)
    speed = {name: megabytes / statistics.median(values) for name, values in seconds.items()}
    ratios = [library / ours for library, ours in zip(seconds["library"], seconds["ours"], strict=True)]
    print(
        f"{platform.processor() or platform.machine()}, {megabytes:.1f} MB, {arguments.rounds} rounds, processor time"
    )
    print(f"library {speed['library']:.1f} MB/s, ours {speed['ours']:.1f} MB/s")
    print(json.dumps({"tokenize_vs_library": round(statistics.median(ratios), 2)}))


if __name__ == "__main__":
    main()
