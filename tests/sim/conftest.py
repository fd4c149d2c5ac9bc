"""What the tests of the command share: a way to run it in this process."""

import json

import pytest

from cronoq_sansio.sim import __main__ as command


class Done:
    """A command that has ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def sim(tmp_path, monkeypatch, capsys):
    """The command in this process and in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, play=command.measured):
        code = command.main(arguments, play)
        return Done(code, *capsys.readouterr())

    run.folder = tmp_path
    return run
