"""A program that imports the command line once and forks a process for each command, which then starts at once.

KERAS_BACKEND=jax python fork_server.py, with a JSON object a line on standard input: "log" (a file for the output;
beside it FILE.pid and, at the end, FILE.status), "environment", "folder", "arguments" of keras-vit, and "before":
Python code that runs first.
"""

import gc
import importlib
import json
import os
import signal
import sys
import traceback

MODULES = (
    "keras_vit_cli.main keras_vit_cli.commands.train keras_vit_cli.commands.finetune.command "
    "keras_vit.recipes.run_recipe keras_vit.recipes.configs keras_vit.recipes.runs.learning_rate_sweep "
    "tensorflow_datasets sklearn.datasets"
)


def run(command) -> int:
    log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(command["environment"])
    os.chdir(command["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exec(command["before"], {})
    try:
        from keras_vit_cli.main import main

        return main(command["arguments"])
    except SystemExit as stopped:
        return stopped.code
    except BaseException:
        traceback.print_exc()
        return 99


def watched(command):
    """Runs a command in a process of its own, and writes its status."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not (pid := os.fork()):
        sys.exit(run(command))
    for name, text in (("pid", lambda: pid), ("status", lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))):
        with open(f"{command['log']}.new", "w") as file:
            file.write(str(text()))
        os.rename(f"{command['log']}.new", f"{command['log']}.{name}")


if __name__ == "__main__":
    gc.disable()
    for module in MODULES.split():
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended processes
    print("ready", flush=True)
    while line := sys.stdin.readline():
        if not os.fork():
            sys.stdin = open(os.devnull)
            watched(json.loads(line))
            os._exit(0)
