"""`completion` prints what a shell needs to complete commands and options."""

import sys
from typing import Literal

from cronoq._cli.failures import DONE, PROGRAM

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell, /) -> int:
    """Print the completion script for a shell; nothing is installed.

    bash: `source <(cronoq-trio completion bash)` in ~/.bashrc. zsh: save it as `_cronoq-trio` in a folder of $fpath.
    fish: save it as ~/.config/fish/completions/cronoq-trio.fish.

    Parameters
    ----------
    shell:
        `bash`, `zsh` or `fish`.
    """
    from cronoq._cli.main import app

    sys.stdout.write(app.generate_completion(prog_name=PROGRAM, shell=shell).rstrip("\n") + "\n")
    return DONE
