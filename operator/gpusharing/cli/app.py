"""`kubectl gpusharing`: the Typer app, its exit codes, and the one place that turns an exception into words.

Exit codes: 0 fine; 1 failed, or problems found; 2 the command line is wrong. A command returns its exit code, or
raises. One that gives 2 a meaning of its own sets `USAGE_ERROR` beside it.
"""

import functools
import gc
import inspect
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from gpusharing import __version__
from gpusharing.cli import commands
from gpusharing.cli.output import say
from gpusharing.core.errors import GpuSharingError

PROGRAM = "kubectl gpusharing"
OK, FAILED, USAGE_ERROR = 0, 1, 2

DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", envvar="GPUSHARING_DEBUG")
]


class CommandLine(TyperGroup):
    """Runs a command and ends the process: an error is one line, then a hint, and the exit code says which kind."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Run the command that the arguments name."""
        try:
            code = super().main(args, PROGRAM, standalone_mode=False)
            sys.stdout.flush()
        except typer.TyperException as error:  # what Typer finds wrong with the command line
            code = _usage_error(error)
        except GpuSharingError as error:
            code = _failed(error.message, error.hint)
        except BrokenPipeError:  # `kubectl gpusharing … | head`: nobody listens any more, and that is fine
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = FAILED
        except Exception as error:
            hint = "this is a bug: please report it with what --debug shows"
            code = _failed(f"{type(error).__name__}: {error}", hint)
        sys.exit(code or OK)


def command_line(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the app with all commands; with arguments that begin with one, with that one.

    To import the others takes longer than most commands run.
    """
    app = typer.Typer(
        cls=CommandLine,
        add_completion=False,  # kubectl asks kubectl_complete-gpusharing; Typer's own completes the wrong name
        rich_markup_mode=None,  # help that starts fast and reads like kubectl's
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    known = commands.names()
    for name in [name for name in known if [name] == [*arguments[:1]]] or known:
        app.command(name)(_with_debug(getattr(commands.module(name), name)))
    return app


def main() -> NoReturn:
    """Run `kubectl gpusharing`."""
    gc.disable()  # the process is short: looking for cycles in a large cluster's objects takes a third of its time
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal is no reason to die
    command_line(sys.argv[1:])()
    raise AssertionError("CommandLine.main ends the process")


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Say once how GPUs are shared; see what each node makes of it."""
    if version:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _with_debug(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command the option `--debug`, which shows the traceback before the error's one line."""

    @functools.wraps(command)
    def run(*args: Any, debug: bool, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except Exception:
            if debug:
                traceback.print_exc()
            raise

    signature = inspect.signature(command)
    option = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=DebugOption)
    vars(run)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), option])
    return run


def _usage_error(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else PROGRAM
    say(f"error: {' '.join(error.format_message().split())}")
    say(f"hint: {path} -h says how it is used")
    if context is None or context.info_name not in commands.names():
        return USAGE_ERROR
    return getattr(commands.module(context.info_name), "USAGE_ERROR", USAGE_ERROR)


def _failed(message: str, hint: str) -> int:
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
    return FAILED
