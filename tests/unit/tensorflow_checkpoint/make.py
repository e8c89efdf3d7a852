"""Make the files next to this one with TensorFlow 2.21, under the names of Google's release: python make.py"""

import zlib

import numpy as np

HIDDEN, INTERMEDIATE, VOCABULARY, POSITIONS = 8, 12, 9, 16
DENSE = {"kernel": None, "bias": None}
LAYER = {
    **{f"attention/self/{name}": (HIDDEN, HIDDEN) for name in ("query", "key", "value")},
    "attention/output/dense": (HIDDEN, HIDDEN),
    "intermediate/dense": (HIDDEN, INTERMEDIATE),
    "output/dense": (INTERMEDIATE, HIDDEN),
}


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (VOCABULARY, HIDDEN),
        "bert/embeddings/position_embeddings": (POSITIONS, HIDDEN),
        "bert/embeddings/token_type_embeddings": (2, HIDDEN),
        "cls/predictions/output_bias": (VOCABULARY,),
        "cls/seq_relationship/output_weights": (2, HIDDEN),
        "cls/seq_relationship/output_bias": (2,),
    }
    dense = {"bert/pooler/dense": (HIDDEN, HIDDEN), "cls/predictions/transform/dense": (HIDDEN, HIDDEN)}
    norms = ["bert/embeddings/LayerNorm", "cls/predictions/transform/LayerNorm"]
    for layer in range(2):
        dense |= {f"bert/encoder/layer_{layer}/{name}": shape for name, shape in LAYER.items()}
        norms += [f"bert/encoder/layer_{layer}/{name}/LayerNorm" for name in ("attention/output", "output")]
    for name, shape in dense.items():
        found |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    for name in norms:
        found |= {f"{name}/gamma": (HIDDEN,), f"{name}/beta": (HIDDEN,)}
    return found


def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Float32 numbers that follow from the name."""
    return np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape).astype(np.float32)


def main() -> None:
    import tensorflow as tf

    tensors = {name: values(name, shape) for name, shape in shapes().items()}
    tensors |= {f"{name}/adam_m": value for name, value in tensors.items() if name.endswith("kernel")}
    names, content = zip(*sorted(tensors.items()), strict=True)
    step = (*names, "global_step"), (*content, np.int64(7))
    tf.raw_ops.SaveV2(
        prefix="bert_model.ckpt", tensor_names=step[0], shape_and_slices=[""] * len(step[0]), tensors=list(step[1])
    )


if __name__ == "__main__":
    main()
