"""Errors that fpet raises for bad input.

FpetError
├── BackboneError        a backbone file or model that cannot be used
├── TaskError            a task, or a file that is made on the way to one, that cannot be read, written, or does not fit
│   ├── DivergedError    a training whose loss is no longer finite
│   ├── UnwritableError  what a training writes on the way cannot be written, as on a full disk
│   └── BusyError        an output that another process is at
├── UnsupportedError     a valid request for something that is not covered
├── DataError            a data set that is missing, damaged or inconsistent
└── ImageError           a picture that cannot be decoded
"""


class FpetError(Exception):
    """Base of every error caused by input; the message is one sentence that names what is wrong."""


class BackboneError(FpetError):
    """A backbone file or model cannot be used."""


class TaskError(FpetError):
    """A task file, or what its training writes (checkpoint, log, a sweep's table), cannot be read or written, or does
    not fit; or the training itself went astray.
    """


class DivergedError(TaskError):
    """A training has a loss that is no longer finite."""


class UnwritableError(TaskError):
    """What a training writes on the way cannot be written; it goes on from there once that is possible."""


class BusyError(TaskError):
    """Another process is writing the same output."""


class UnsupportedError(FpetError):
    """The request is well formed but outside what the project covers."""


class DataError(FpetError):
    """A data set is missing, damaged or inconsistent."""


class ImageError(FpetError):
    """A picture cannot be decoded."""
