"""Every error that `bench` raises on purpose.

    BenchError                      exit 1
    +-- UsageError                  exit 2   a flag, a suite file, a name that is not known
    |   +-- SuiteError                       a suite file, with its line
    +-- MissingError                exit 4   an engine, driver, library or device that is not there
    |   +-- EngineMissing
    |   +-- DeviceMissing
    |   +-- DeviceInUse                      others compute on it
    +-- ModelError                  exit 1   weights that can't be had (network, gated, hash, disk)
    +-- EngineError                 exit 1   an engine that did not start, or died
    |   +-- EngineStartError
    |   +-- EngineDied
    +-- TargetError                 exit 1   an endpoint that refuses, or answers wrongly before any load is sent
    +-- ProbeError                  exit 1   a device that is there but can't be read
    +-- LoadError                   exit 1   the load generator itself failed
    +-- StoreError                  exit 1   results that can't be written or read
    +-- InterruptedRun              exit 130 Ctrl-C or SIGTERM

A message says what failed, the value, and the next step. `hint` is the next step on a line of its own.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REGRESSION = 3
EXIT_MISSING = 4
EXIT_INTERRUPTED = 130


class BenchError(Exception):
    """An expected failure: `str(e)` is for a person, `e.hint` is the next step, `e.exit_code` is the shell's."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(BenchError):
    """Flags, names or files that the person can mend."""

    exit_code = EXIT_USAGE


class SuiteError(UsageError):
    """A suite file that can't be used; the message begins with `file:line:`."""


class MissingError(BenchError):
    """Something that must be installed or plugged in."""

    exit_code = EXIT_MISSING


class EngineMissing(MissingError):
    """The engine is not installed here."""


class DeviceMissing(MissingError):
    """The device asked for is not here."""


class DeviceInUse(MissingError):
    """Others compute on the device asked for."""


class ModelError(BenchError):
    """Model weights that can't be had."""


class EngineError(BenchError):
    """The engine misbehaved; `log_tail` holds its own last words, `log_path` is where all of them are for as long as the run
    goes on.
    """

    def __init__(self, message: str, *, hint: str | None = None, log_tail: str = "", log_path: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.log_tail = log_tail
        self.log_path = log_path


class EngineStartError(EngineError):
    """The engine never became ready."""


class EngineDied(EngineError):
    """The engine was ready and then ended."""


class TargetError(BenchError):
    """An endpoint that can't be used (refused, 401, unknown model)."""


class ProbeError(BenchError):
    """A device that can't be read."""


class LoadError(BenchError):
    """The load generator failed; never the engine's failure, which is an outcome in the event log."""


class StoreError(BenchError):
    """Results that can't be written or read."""


class InterruptedRun(BenchError):
    """The person, or the system, asked us to stop."""

    exit_code = EXIT_INTERRUPTED
