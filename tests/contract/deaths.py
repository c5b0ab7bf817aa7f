"""Worker processes that die at a task of one's choice, whatever the task does: reading, a pass, or learning."""

import os
import signal
from pathlib import Path

from distributed import WorkerPlugin


class Tasks(WorkerPlugin):
    """Count the tasks that begin on any worker, in a folder; whoever begins the fatal one dies, once."""

    name = "tasks"

    def __init__(self, folder, fatal=0):
        self.folder, self.fatal = str(folder), fatal

    def setup(self, worker):
        self.worker = worker

    def transition(self, key, start, finish, **kwargs):
        if finish != "executing":
            return
        number = sum(1 for _ in Path(self.folder).iterdir()) + 1
        (Path(self.folder) / f"{number}-{os.getpid()}").touch()
        if number == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)


def whole(client, patience=60):
    """Wait for both workers; for new ones, where a nanny has not started another for one that was killed."""
    try:
        client.wait_for_workers(2, timeout=patience)
    except TimeoutError:
        client.cluster.scale(0)
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=patience)


def counted(client, folder, function, fatal=0):
    """What a function gives while tasks are counted in a new folder, and how many began."""
    folder.mkdir()
    whole(client)
    client.register_plugin(Tasks(folder, fatal), name="tasks")
    try:
        found = function()
    finally:
        client.unregister_worker_plugin("tasks")
    return found, len(list(folder.iterdir()))
