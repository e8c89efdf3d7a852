"""Lines as squeue prints them for Bertline."""

from __future__ import annotations

from bertline.cluster.slurm import FIELDS


def line_of_job(*fields: str) -> bytes:
    """Return the line of a job, with its first fields padded and cut by bytes, as Slurm does it."""
    widths = zip(fields, FIELDS.values(), strict=False)
    return b"".join(field.encode().ljust(width)[:width] for field, width in widths) + b"\n"


def squeue_with(*fields: str) -> str:
    """Return a shell program that lists a job with these first fields."""
    return f"#!/bin/sh\ncat <<'END'\n{line_of_job(*fields).decode()}END\n"
