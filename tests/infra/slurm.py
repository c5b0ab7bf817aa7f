"""SLURM of two nodes on this machine: each a network namespace with a host name of its own, joined by two veths."""

import contextlib
import os
import subprocess
import time
import uuid

import pytest

from tests.infra.conftest import around, program, service, wait_for

FAST = "fast0"  # the network that joins the nodes; they have no other
CONFIG = """
ClusterName=test
SlurmctldHost={nodes[0]}({addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=15
InactiveLimit=0
KillWait=5
MinJobAge=300
OverTimeLimit=0
ReturnToService=2
SchedulerParameters=sched_interval=2
"""


class Slurm:
    """The cluster, and the commands of a user on its first node."""

    def __init__(self, folder, nodes, environment, daemons):
        self.folder, self.nodes, self.environment, self.daemons = folder, nodes, environment, daemons

    def run(self, *args, cwd=None, check=True):
        command = inside(self.nodes[0], *map(str, args))
        done = subprocess.run(command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def submit(self, cwd, *args):
        return self.run("sbatch", "--parsable", *args, cwd=cwd)

    def state(self, job):
        """State and exit code, such as COMPLETED and 0:0."""
        said = dict(word.split("=", 1) for word in self.run("scontrol", "show", "job", job).split() if "=" in word)
        return said["JobState"], said["ExitCode"]

    def ended(self, job, seconds=240):
        """Wait for the job's end."""
        running = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
        end = time.monotonic() + seconds
        while (found := self.state(job))[0] in running:
            assert time.monotonic() < end, (found, self.log(job))
            time.sleep(0.5)
        return found

    def log(self, job):
        found = sorted(self.folder.glob(f"**/*-{job}.log"))
        return found[0].read_text(errors="replace") if found else ""


def inside(node, *args):
    """The command on a node: its network, its host name; all else is shared."""
    named = ["unshare", "--uts", "sh", "-c", f'hostname {node}; exec "$@"', "sh"]
    return ["nsenter", f"--net=/run/netns/{node}", *named, *args]


@contextlib.contextmanager
def cluster(folder, count=2):
    """Controller on the first node, a daemon on each."""
    if os.geteuid() != 0:
        pytest.skip("SLURM's nodes are network namespaces, which only root can make")
    programs = {name: program(name) for name in ("munged", "slurmctld", "slurmd", "sbatch", "ip", "nsenter")}
    short = uuid.uuid4().hex[:5]
    nodes, addresses = [f"dca{short}{i}" for i in range(count)], [f"10.77.0.{i + 1}" for i in range(count)]
    with contextlib.ExitStack() as stack:
        for node in nodes:
            network(stack, node)
        join(nodes, addresses)
        names = [f"NodeName={node} NodeAddr={address} CPUs=8 RealMemory=65536 State=UNKNOWN"
                 for node, address in zip(nodes, addresses, strict=True)]  # fmt: skip
        whole = [CONFIG.format(nodes=nodes, addresses=addresses, folder=folder), *names,
                 "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
                 "PartitionName=short Nodes=ALL MaxTime=60 State=UP"]  # fmt: skip
        (folder / "slurm.conf").write_text("\n".join(whole) + "\n")
        for name in ("state", *(f"spool-{node}" for node in nodes)):
            (folder / name).mkdir()
        environment = around(SLURM_CONF=str(folder / "slurm.conf"), DASK_DCA_INTERFACE=FAST)
        munge(stack, folder, programs["munged"])
        daemons = {"slurmctld": [programs["slurmctld"], "-D", "-i"]}
        daemons |= {node: [programs["slurmd"], "-D", "-N", node] for node in nodes}
        where = {"slurmctld": nodes[0], **{node: node for node in nodes}}
        running = {
            name: stack.enter_context(
                service(inside(where[name], *args), folder / f"{name}.said", env=environment, start_new_session=True)
            )
            for name, args in daemons.items()
        }
        slurm = Slurm(folder, nodes, environment, running)
        wait_for(
            lambda: slurm.run("sinfo", "-h", "-p", "main", "-o", "%t %D", check=False) == f"idle {count}",
            60,
            "no idle nodes",
        )
        yield slurm
        slurm.run("scancel", "--full", "--user=root", check=False)
        wait_for(lambda: not slurm.run("squeue", "-h", check=False), 60, "jobs don't end")


def network(stack, node):
    subprocess.run(["ip", "netns", "add", node], check=True)
    stack.callback(subprocess.run, ["ip", "netns", "delete", node], check=True)
    subprocess.run(["ip", "-n", node, "link", "set", "lo", "up"], check=True)


def join(nodes, addresses):
    """Two nodes, one cable."""
    first, second = nodes
    pair = ["name", FAST, "type", "veth", "peer", "name", FAST, "netns", second]
    subprocess.run(["ip", "-n", first, "link", "add", *pair], check=True)
    for node, address in zip(nodes, addresses, strict=True):
        subprocess.run(["ip", "-n", node, "address", "add", f"{address}/24", "dev", FAST], check=True)
        subprocess.run(["ip", "-n", node, "link", "set", FAST, "up"], check=True)


def munge(stack, folder, munged):
    place = folder / "munge"
    place.mkdir(mode=0o755)
    (place / "key").write_bytes(os.urandom(128))
    (place / "key").chmod(0o400)
    files = [
        f"--{name}={place}/{name.removesuffix('-file')}" for name in ("key-file", "pid-file", "log-file", "seed-file")
    ]
    stack.enter_context(
        service([munged, "--foreground", "--force", f"--socket={place}/socket", *files], place / "said")
    )
    wait_for((place / "socket").exists, 20, "munged does not start")
