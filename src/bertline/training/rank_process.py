"""The process of a rank: it runs a command and ends with an exit status that the launcher understands."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from bertline.command_line import run_command
from bertline.training.contract import FAILED, LOST, is_rank_zero

SECONDS_FOR_RANK_0 = 5.0


def run_rank(command: Callable[..., object], text: str | None) -> NoReturn:
    """Run a script as `run_command` does and end the process without cleanup: all files are written by then.

    Destroying gloo's threads occasionally aborts a process. With NCCL, a failed rank could wait forever for a kernel
    that waits for the other ranks, so that the launcher would not notice the failure.
    """
    status = 0
    try:
        run_command(command, text)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            # All ranks find the same problem: rank 0 reports it, and the launcher then stops the others.
            if not is_rank_zero():
                time.sleep(SECONDS_FOR_RANK_0)
            print(ended.code, file=sys.stderr)
        if isinstance(ended.code, int):
            status = ended.code
        elif ended.code is not None:
            status = FAILED
    except KeyboardInterrupt:
        status = 130
    except BaseException as error:
        from bertline.training.distributed.process_group import is_lost_connection

        status = LOST if is_lost_connection(error) else FAILED
        # Only the rank that failed reports why; the launcher reports for one that cannot.
        if status == FAILED:
            traceback.print_exc()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
